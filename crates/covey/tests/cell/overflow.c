/* A coroutine that needs more stack than it has. */
#include "covey_cell.h"

/* The stack is the upper end of it, so that what runs over stays within. */
static char memory[65536 + 4096] __attribute__((aligned(16)));

static int
deep(int level)
{
    volatile char room[512];
    int at;

    for (at = 0; at < 512; at++)
        room[at] = level;
    return level ? deep(level - 1) + room[level] : memory[0];
}

static void
cor(void *argument)
{
    deep(12);
    spc_log("it went on\n");
}

void
cormain()
{
    mkcor(cor, 0, memory + 65536, 4096);
}
