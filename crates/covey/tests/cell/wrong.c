/* Calls that make no sense are errors of the call, and memory moves with its bytes. */
#include "covey_cell.h"
#include <string.h>

static char stack[8192];

static void
refused(const char *what, int result)
{
    char *text;
    int number;

    sp_rerror(&text, &number);
    spc_log("%s: %d %d %s\n", what, result, number, text);
    sp_werror(0, 0);
}

static void
nothing(void *argument)
{
}

void
cormain(u64 worker, char **argv)
{
    char *words = malloc(8), *more;
    int fd = spc_open("#r/board");

    refused("open", spc_open(0, Oread));
    refused("remove", spc_remove(0));
    refused("read", spc_pread(fd, 0, 16, 0));
    refused("write", spc_write(fd, 0, 5));
    refused("mkcor", mkcor(0, 0, stack, sizeof stack));
    refused("mkcor", mkcor(nothing, 0, 0, sizeof stack));
    strcpy(words, "quail");
    more = realloc(words, 5000);
    spc_log("%s\n", more ? more : "lost");
    refused("realloc", realloc(more, 1 << 20) != 0);
    refused("realloc", realloc(words, 8) != 0);
    free(more);
    spc_log("done\n");
}
