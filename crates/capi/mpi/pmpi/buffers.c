/* Buffers for packed bytes. Fresh memory costs a page fault for every 4 KiB, several times what packing
 * does, so buffers are kept in powers of two. Small ones are used in turn: the one that a peer on another
 * core has just read is still in that core's cache, and writing it again waits for it to be given up. */
#include "pmpi.h"
#include <sys/mman.h>

enum { SMALLEST = 12, LARGEST = 26, CLASSES = LARGEST - SMALLEST + 1 };
/* Kept at most, all in all. */
#define KEPT_MAX (256ull << 20)
/* So many buffers of up to 256 KiB are used in turn, and one of each larger size. */
enum { TURNS = 8, TURNED = 18 };
/* From here on a buffer is aligned to, and may become, a huge page. */
#define HUGE (2ull << 20)

struct idle {
    struct idle *next;
};

/* Idle buffers of one size, the one that was used longest ago first. */
static struct class {
    struct idle *first, **end;
    int idle, all;
} classes[CLASSES];
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

/* Takes an idle buffer, unless there are too few to be used in turn. The caller has the lock. */
static struct idle *take_idle(struct class *class, int bits)
{
    struct idle *found = class->first;
    if (!found || (bits <= TURNED && class->all < TURNS))
        return NULL;
    class->first = found->next;
    class->idle--;
    kept -= 1ull << bits;
    return found;
}

static void give_idle(struct class *class, int bits, struct idle *one)
{
    if (!class->first)
        class->end = &class->first;
    one->next = NULL;
    *class->end = one;
    class->end = &one->next;
    class->idle++;
    kept += 1ull << bits;
}

char *buffer_take(uint64_t bytes)
{
    int at = class_of(bytes), bits = at + SMALLEST;
    if (at < 0)
        return fresh(bytes);
    pthread_mutex_lock(&lock);
    struct idle *found = take_idle(&classes[at], bits);
    classes[at].all += !found;
    pthread_mutex_unlock(&lock);
    char *buffer = found ? (char *)found : fresh(1ull << bits);
    if (!buffer) {
        pthread_mutex_lock(&lock);
        classes[at].all--;
        pthread_mutex_unlock(&lock);
    }
    return buffer;
}

void buffer_give(char *buffer, uint64_t bytes)
{
    int at = class_of(bytes), bits = at + SMALLEST, keeps = 0;
    if (!buffer)
        return;
    if (at >= 0) {
        pthread_mutex_lock(&lock);
        keeps = kept + (1ull << bits) <= KEPT_MAX;
        if (keeps)
            give_idle(&classes[at], bits, (struct idle *)(void *)buffer);
        else
            classes[at].all--;
        pthread_mutex_unlock(&lock);
    }
    if (!keeps)
        free(buffer);
}
