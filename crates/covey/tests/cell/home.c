/* What a worker of another node finds here: a region and two pipes. */
#include "covey_cell.h"

static char block[64] __attribute__((aligned(16)));

void
cormain()
{
    int board = spc_open("#r/board"), orders = spc_open("#p/orders"), answers = spc_open("#p/answers"), count;

    spc_write(board, "from home, at rest\n", 19);
    spc_log("ready\n");
    count = spc_read(orders, block, sizeof block);
    spc_log("order: %.*s", count, block);
    spc_write(answers, "marched\n", 8);
    count = spc_read(orders, block, sizeof block);
    spc_log("order: %.*s", count, block);
    count = spc_pread(board, block, sizeof block, 0);
    spc_log("board: %.*s", count, block);
}
