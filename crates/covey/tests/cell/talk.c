/* Worker 0 writes into a pipe, as fast as it can and not, worker 1 reads what is there. A path has two lines. */
#include "covey_cell.h"

void
cormain(u64 worker, char **argv)
{
    char bytes[64];
    int fd = spc_open("#p/talk"), odd = spc_open("#r/two\nlines"), got = 0, count, turn;
    volatile int pause;

    spc_close(odd);
    if (worker == 0) {
        for (turn = 0; turn < 20; turn++) {
            spc_write(fd, "0123456789", 10);
            for (pause = 0; pause < 30000 * (turn % 3); pause++)
                ;
        }
        return;
    }
    while (got < 200 && (count = spc_read(fd, bytes, sizeof bytes)) > 0)
        got += count;
    spc_log("%d bytes\n", got);
}
