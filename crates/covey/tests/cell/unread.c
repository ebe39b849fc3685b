/* Worker 0 logs what nobody reads, worker 1 goes on and says so in a file. Or, with a number: so many lines are logged. */
#include "covey_cell.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
lines(long count)
{
    char line[128];
    long at;

    for (at = 0; count == 0 || at < count; at++) {
        sprintf(line, "%08ld %.90s\n", at,
            "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890");
        spc_log("%s", line);
    }
}

void
cormain(u64 worker, char **argv)
{
    long at;
    int file;

    if (argv[2])
        lines(atol(argv[2]));
    if (argv[2])
        return;
    if (worker == 0)
        lines(0);
    file = spc_open(argv[1]);
    for (at = 0;; at++)
        spc_pwrite(file, "x", 1, at);
}
