/* The same calls for memory, a pipe, the file system and another node's. */
#include "covey_cell.h"
#include <string.h>

static char block[64] __attribute__((aligned(16)));

static int
check(const char *what, int result)
{
    char *text;
    int number;

    if (result < 0) {
        sp_rerror(&text, &number);
        spc_log("%s: %s (%d)\n", what, text, number);
    }
    return result;
}

void
cormain()
{
    int fd, count;

    fd = check("memory", spc_open("#r/board"));
    check("memory", spc_write(fd, "from the worker\n", 16));
    fd = check("fs", spc_open("/fs/result"));
    check("fs", spc_pwrite(fd, "in the file system\n", 19, 0));
    check("fs", spc_close(fd));
    fd = check("another node", spc_open("/n/io2/fs/result", Oread));
    count = check("another node", spc_read(fd, block, sizeof block));
    spc_log("%.*s", count, block);
    fd = check("pipe", spc_open("#p/orders"));
    spc_log("ready\n");
    count = check("pipe", spc_read(fd, block, sizeof block));
    spc_log("order: %.*s", count, block);
}
