/* What is refused, in words. */
#include "covey_cell.h"

static char stack[8192];
static char large[100000];

static void
why(const char *what)
{
    char *text;
    int number;

    sp_rerror(&text, &number);
    spc_log("%s: %d %s\n", what, number, text);
}

static void
nothing(void *argument)
{
    terminate();
}

void
cormain(u64 worker, char **argv)
{
    void *memory;

    large[0] = 1;
    sp_werror(0, 0);
    if (malloc(200000) || !sp_haserror())
        spc_log("a large allocation was not refused\n");
    why("malloc");
    memory = malloc(50000);
    if (!memory)
        why("a small one");
    if (mkcor(nothing, 0, stack, 100) >= 0)
        spc_log("a small stack was not refused\n");
    why("mkcor");
    if (mkcor(nothing, 0, stack, sizeof stack) != 1)
        why("coroutine");
    free(memory);
    memory = malloc(50000);
    if (!memory)
        why("again");
    if (spc_open("#q/x", Oread) >= 0 || spc_read(77, large, 16) >= 0)
        spc_log("nonsense was not refused\n");
    why("read");
    spc_log("done\n");
}
