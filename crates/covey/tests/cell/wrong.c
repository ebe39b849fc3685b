/* Calls that make no sense are errors of the call, and memory moves with its bytes. */
#include "covey_cell.h"
#include <string.h>
#include <sys/mman.h>

static char stack[8192];
static char path[20000];
static int is_over, ran;

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

/* Lives while its stack is tried out: what is logged lets it run. */
static void
lives(void *argument)
{
    while (!is_over)
        yield();
    ran++;
}

/* Stacks that are in use, and memory that is not to be freed. */
static void
taken(void)
{
    char *mapped = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *block = malloc(4096);

    if (mkcor(lives, 0, stack, 4096) < 0 || mkcor(lives, 0, mapped, 4096) < 0 || mkcor(lives, 0, block, 4096) < 0)
        spc_log("a stack was refused\n");
    refused("taken", mkcor(nothing, 0, stack, 4096));
    refused("taken", mkcor(nothing, 0, stack + 2048, 4096));
    free(mapped);
    refused("free mapped", 0);
    free(stack);
    refused("free variable", 0);
    free(block);
    refused("free busy", 0);
    refused("realloc busy", realloc(block, 8192) != 0);
    is_over = 1;
    while (ran < 3)
        yield();
    free(block);
    refused("free", 0);
    if (mkcor(nothing, 0, stack, 4096) < 0)
        spc_log("a stack was refused\n");
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
    memset(path, 'x', sizeof path - 1);
    memcpy(path, "#r/", 3);
    refused("long name", spc_open(path));
    refused("long name", spc_create(path, 0644, Ordwr));
    path[3 + 255] = 0;
    refused("longest name", spc_create(path, 0644, Ordwr) < 0);
    taken();
    spc_log("done\n");
}
