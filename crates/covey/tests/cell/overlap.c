/* Sixteen coroutines whose transfers overlap, by copies and by messages. */
#include "covey_cell.h"
#include <string.h>

static char stacks[16][4096];
static int shared, file;

static void
cor(void *argument)
{
    long id = (long) argument;
    char block[128] __attribute__((aligned(16)));
    int step;

    for (step = 0; step < 6; step++) {
        memset(block, 'a' + id, sizeof block);
        /* Every other one is not aligned and goes by message. */
        spc_pwrite(shared, block, 64, id * 640 + step * 64 + step % 2);
        spc_pread(file, block, 96, (id * 7 + step) * 16);
        if (step == id % 5)
            yield();
    }
    if (checkstack() != 0)
        spc_log("stack of %d is broken\n", corid());
}

void
cormain(u64 worker, char **argv)
{
    char name[32] = "#r/own00";
    long id;

    name[6] += worker / 10;
    name[7] += worker % 10;
    shared = spc_open(name);
    file = spc_open(argv[1], Oread);
    for (id = 0; id < 16; id++)
        mkcor(cor, (void *) id, stacks[id], sizeof stacks[id]);
    if (argv[2])
        spc_log("another program\n");
}
