/* Says which worker of which node it is, in a region of its own, and waits for a word. */
#include <stdio.h>
#include <stdlib.h>
#include "covey_cell.h"

static char name[32];
static char words[64] __attribute__((aligned(16)));

void
cormain(u64 worker, char **argv)
{
    const char *node = getenv("COVEY_NODE");
    int board, go, bytes;

    snprintf(name, sizeof name, "#r/worker%d", (int) worker);
    board = spc_open(name);
    bytes = snprintf(words, sizeof words, "worker %d of %s\n", (int) worker, node ? node : "nowhere");
    snprintf(name, sizeof name, "#p/go%d", (int) worker);
    go = spc_open(name);
    if (spc_write(board, words, bytes) != bytes || spc_read(go, words, sizeof words) <= 0)
        spc_log("nobody has come\n");
    spc_log("worker %d was seen\n", (int) worker);
}
