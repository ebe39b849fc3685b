/* What a program holds in ways that are easily forgotten. With a word it has variables of its thread that do not fit. */
#include "covey_cell.h"

#ifdef THREADS
static __thread volatile char of_threads[1 << 20];
#endif

static void
cor(void *argument)
{
}

void
cormain()
{
    char own[8192], *text;
    int number, count;

#ifdef THREADS
    of_threads[77] = 1;
#endif
    number = mkcor(cor, 0, own, sizeof own);
    spc_log("the first stack: %s\n", number < 0 ? "refused" : "taken twice");
    sp_rerror(&text, &number);
    spc_log("%d\n", number);
    for (count = 0; count < 1000000 && spc_malloc(0); count++)
        ;
    spc_log("allocations of nothing: %s\n", count <= 2048 ? "counted" : "not counted");
}
