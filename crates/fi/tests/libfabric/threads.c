/* Many threads use the same endpoints, queues and counters at once: each has tags and memory of its own. */
#include "ends.h"
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, ROUNDS = 300, KEY = 3 };

static atomic_int taken[2][THREADS], failed;

/* What is read by one thread may have been begun by another, of either end: its context says by whom. All threads make
 * both ends go on, as those of one may be done before those of the other. */
static void take(void) {
    struct fi_cq_tagged_entry entries[8];
    ssize_t all = 0;
    for (int at = 0; at < 2; at++) {
        ssize_t got = fi_cq_read(ends[at].cq, entries, 8);
        if (got == -FI_EAVAIL) failed = 1;
        for (ssize_t one = 0; one < got; one++) atomic_fetch_add((atomic_int *)entries[one].op_context, 1);
        all += got > 0;
    }
    if (!all) sched_yield();
}

static int is_over(double until) {
    CHECK(now() < until);
    return failed;
}

/* As long as the call has to be made again. */
#define PERSIST(call)                                                                                                  \
    do {                                                                                                               \
        ssize_t result;                                                                                                \
        while ((result = (call)) == -FI_EAGAIN) take();                                                                \
        CHECK(!result);                                                                                                \
    } while (0)

static void *works(void *argument) {
    int which = (int)(intptr_t)argument % THREADS, at = (intptr_t)argument / THREADS;
    size_t bytes = which == 0 ? 100000 : 64 << which;
    char *out = malloc(bytes), *in = malloc(bytes), *back = malloc(bytes);
    uint64_t one = 1;
    double until = now() + 100;
    for (int round = 0; round < ROUNDS && !is_over(until); round++) {
        int before = taken[at][which];
        memset(out, round * 7 + which, bytes);
        PERSIST(fi_trecv(ends[at].ep, in, bytes, NULL, ends[at].other, which, 0, &taken[at][which]));
        struct iovec piece = {out, bytes};
        struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = 1, .addr = ends[at].other, .tag = which,
                                        .context = &taken[at][which]};
        PERSIST(fi_tsendmsg(ends[at].ep, &message, FI_COMPLETION));
        PERSIST(fi_inject_atomic(ends[at].ep, &one, 1, ends[at].other, 0, KEY, FI_UINT64, FI_SUM));
        struct fi_rma_iov there = {8 + which * 100000, bytes, KEY};
        struct fi_msg_rma put = {.msg_iov = &piece, .iov_count = 1, .addr = ends[at].other, .rma_iov = &there,
                                 .rma_iov_count = 1, .context = &taken[at][which]};
        PERSIST(fi_writemsg(ends[at].ep, &put, FI_COMPLETION));
        while (taken[at][which] < before + 3 && !is_over(until)) take();
        struct iovec into = {back, bytes};
        put.msg_iov = &into;
        PERSIST(fi_readmsg(ends[at].ep, &put, FI_COMPLETION));
        while (taken[at][which] < before + 4 && !is_over(until)) take();
        for (size_t byte = 0; byte < bytes; byte++)
            CHECK(in[byte] == (char)(round * 7 + which) && back[byte] == in[byte]);
    }
    free(out);
    free(in);
    free(back);
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[2 * THREADS];
    struct fid_mr *mr[2];
    open_ends(count, arguments, FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV, 0);
    IS(info->domain_attr->threading, FI_THREAD_SAFE);
    for (int at = 0; at < 2; at++)
        IS(fi_mr_reg(ends[at].domain, ends[at].memory, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr[at], NULL), 0);
    for (intptr_t at = 0; at < 2 * THREADS; at++) CHECK(!pthread_create(&threads[at], NULL, works, (void *)at));
    for (int at = 0; at < 2 * THREADS; at++) CHECK(!pthread_join(threads[at], NULL));
    CHECK(!failed);
    /* Additions reported nothing. */
    double until = now() + 60;
    for (int at = 0; at < 2; at++)
        while (*(volatile uint64_t *)ends[at].memory != THREADS * ROUNDS) {
            take();
            CHECK(now() < until);
        }
    for (int at = 0; at < 2; at++) IS(fi_close(&mr[at]->fid), 0);
    close_ends();
    return 0;
}
