/* Copies from and to a file that somebody else cuts off meanwhile, on small stacks, until a byte of another file says so. */
#include "covey_cell.h"
#include <string.h>

#define CORS 3
#define BLOCK 8192
#define BLOCKS 16

static char stacks[CORS][4096] __attribute__((aligned(16)));
static char blocks[CORS][BLOCK] __attribute__((aligned(16)));
static char control[16] __attribute__((aligned(16)));
static int running, strange, is_over;
static char *path;

static void
check(const char *block, int count)
{
    int at;

    for (at = 0; at < count; at++)
        if (block[at] != 0 && block[at] != 'x')
            strange++;
}

static void
copy(void *argument)
{
    char *block = blocks[(long) argument];
    int fd, turn, at;

    while (!is_over) {
        fd = spc_open(path, Ordwr);
        for (turn = 0; turn < 4 * BLOCKS && !is_over; turn++) {
            at = turn * 7 % BLOCKS * BLOCK;
            check(block, spc_pread(fd, block, BLOCK, at));
            memset(block, 'x', BLOCK);
            spc_pwrite(fd, block, BLOCK, at);
        }
        spc_close(fd);
    }
    if (checkstack() != 0)
        strange++;
    running--;
}

void
cormain(u64 worker, char **argv)
{
    int fd = spc_open(argv[2], Oread);
    long cor;

    path = argv[1];
    for (cor = 0; cor < CORS; cor++) {
        running++;
        mkcor(copy, (void *) cor, stacks[cor], sizeof stacks[cor]);
    }
    spc_log("copies\n");
    while (!is_over) {
        yield();
        is_over = spc_pread(fd, control, sizeof control, 0) < 0 || control[0];
    }
    while (running > 0)
        yield();
    spc_log("%d strange bytes\n", strange);
}
