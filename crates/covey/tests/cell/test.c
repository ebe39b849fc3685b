/* The paper's listing of an open and a write, around it what it leaves out. */
#include "covey_cell.h"

static char data[] = "written by a worker\n";
static unsigned num = sizeof data - 1;

void
cormain(u64 spuid, char **argv, char **env)
{
    int fd;

fd = spc_open("#U/tmp/test");
spc_write(fd, data, num);
spc_close(fd);
    spc_log("descriptor %d\n", fd);
}
