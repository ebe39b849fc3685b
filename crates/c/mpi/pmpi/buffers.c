/* Buffers for packed bytes. Fresh memory costs a page fault for every 4 KiB, several times what packing
 * does, so buffers are kept in powers of two. */
#include "pmpi.h"
#include <sys/mman.h>

enum { SMALLEST = 12, LARGEST = 26, CLASSES = LARGEST - SMALLEST + 1 };
/* Kept at most, all in all. */
#define KEPT_MAX (256ull << 20)
/* From here on a buffer is aligned to, and may become, a huge page. */
#define HUGE (2ull << 20)

static struct idle {
    struct idle *next;
} *idle[CLASSES];
static uint64_t kept;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The class of a size; -1 beyond the largest. */
static int class_of(uint64_t bytes)
{
    int bits = SMALLEST;
    while (bits <= LARGEST && 1ull << bits < bytes)
        bits++;
    return bits <= LARGEST ? bits - SMALLEST : -1;
}

static char *fresh(uint64_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, bytes >= HUGE ? HUGE : 4096, bytes) != 0)
        return NULL;
    if (bytes >= HUGE)
        madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

char *buffer_take(uint64_t bytes)
{
    int class = class_of(bytes);
    if (class < 0)
        return fresh(bytes);
    pthread_mutex_lock(&lock);
    struct idle *found = idle[class];
    if (found) {
        idle[class] = found->next;
        kept -= 1ull << (class + SMALLEST);
    }
    pthread_mutex_unlock(&lock);
    return found ? (char *)found : fresh(1ull << (class + SMALLEST));
}

void buffer_give(char *buffer, uint64_t bytes)
{
    int class = class_of(bytes), keeps = 0;
    if (!buffer)
        return;
    if (class >= 0) {
        uint64_t room = 1ull << (class + SMALLEST);
        struct idle *one = (struct idle *)(void *)buffer;
        pthread_mutex_lock(&lock);
        keeps = kept + room <= KEPT_MAX;
        if (keeps) {
            one->next = idle[class];
            idle[class] = one;
            kept += room;
        }
        pthread_mutex_unlock(&lock);
    }
    if (!keeps)
        free(buffer);
}
