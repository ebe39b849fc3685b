/* Another process is stopped in the middle of an access to memory of this one. What it has hold of cannot be closed, and the
 * call that says so keeps neither this process nor its other threads for long; when it has gone on, all can be. */
#include "pair.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { BYTES = 16 << 20 };

static atomic_int is_over;
static atomic_long looks;

static void open_all(int to, int from) {
    struct fi_info *wish = hints();
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT};
    wish->caps = FI_TAGGED | FI_RMA;
    wish->domain_attr->threading = FI_THREAD_SAFE;
    open_pair(to, from, wish, cq_attr, BYTES, BYTES);
}

/* What has ended, well or not. */
static void take_all(void) {
    struct fi_cq_entry entries[16];
    struct fi_cq_err_entry error = {0};
    while (fi_cq_read(cq, entries, 16) != -FI_EAGAIN) fi_cq_readerr(cq, &error, 0);
}

static void *look(void *nothing) {
    while (!is_over) {
        take_all();
        looks++;
    }
    return nothing;
}

int main(void) {
    int down[2], up[2];
    CHECK(!pipe(down) && !pipe(up));
    pid_t child = fork();
    if (!child) {
        /* Whatever becomes of the other one: nobody is left who computes, or holds its output open. */
        CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
        open_all(up[1], down[0]);
        for (;;) {
            fi_read(ep, memory, BYTES, NULL, other, 0, KEY, NULL);
            take_all();
        }
    }
    open_all(down[1], up[0]);
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, look, NULL));
    /* Most of its time it is within an access. */
    long seen;
    int closed = 0;
    for (int tries = 0; closed != -FI_EBUSY; tries++) {
        CHECK(tries < 100);
        usleep(100000 + tries * 777);
        CHECK(!kill(child, SIGSTOP));
        while (state_of(child) != 'T') usleep(1000);
        seen = looks;
        closed = fi_close(&mr->fid);
        CHECK(closed == 0 || closed == -FI_EBUSY);
        if (closed == 0) {
            IS(registers(BYTES), 0);
            CHECK(!kill(child, SIGCONT));
        }
    }
    /* Others went on all the time. */
    CHECK(looks > seen + 100);
    struct fid_mr *second = mr;
    IS(registers(BYTES), -FI_ENOKEY);
    mr = second;
    IS(fi_close(&domain->fid), -FI_EBUSY);
    IS(fi_close(&ep->fid), -FI_EBUSY);
    IS(fi_close(&mr->fid), -FI_EBUSY);
    CHECK(!kill(child, SIGCONT));
    /* A busy machine may take longer to let it end its access than a close waits. */
    for (int tries = 0; (closed = fi_close(&mr->fid)) == -FI_EBUSY && tries < 10; tries++) continue;
    IS(closed, 0);
    IS(registers(BYTES), 0);
    usleep(100000);
    /* The endpoint first: nobody gets there any more, though the memory is still registered. */
    is_over = 1;
    CHECK(!pthread_join(thread, NULL));
    IS(fi_close(&ep->fid), 0);
    IS(fi_close(&domain->fid), -FI_EBUSY);
    CHECK(!kill(child, SIGKILL));
    IS(waitpid(child, NULL, 0), child);
    IS(fi_close(&mr->fid), 0);
    IS(fi_close(&cq->fid), 0);
    IS(fi_close(&av->fid), 0);
    IS(fi_close(&domain->fid), 0);
    IS(fi_close(&fabric->fid), 0);
    puts("right");
    return 0;
}
