/* What a descriptor that is for writing alone does, and a file that may not be read. */
#include "covey_cell.h"

static char block[64] __attribute__((aligned(16)));

void
cormain(u64 worker, char **argv)
{
    int fd = spc_open(argv[1], Owrite);

    spc_log("write %d\n", spc_pwrite(fd, "0123456789abcdef", 16, 0));
    spc_log("aligned %d\n", spc_pread(fd, block, 16, 0));
    spc_log("other %d\n", spc_pread(fd, block + 1, 15, 1));
    spc_close(fd);
    fd = spc_open(argv[2], Owrite);
    spc_log("hidden %d\n", spc_pwrite(fd, "0123456789abcdef", 16, 0));
}
