/* Another process is stopped in the middle of an access to memory of this one. What it has hold of cannot be closed, and the
 * call that says so keeps neither this process nor its other threads for long; when it has gone on, all can be. */
#include "fabric.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 16 << 20, KEY = 9 };

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;
static struct fid_mr *mr;
static struct fi_info *info;
static fi_addr_t other;
static char *memory;
static atomic_int is_over;
static atomic_long looks;

static int registers(void) {
    return fi_mr_reg(domain, memory, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL);
}

static void open_all(int to, int from) {
    struct fi_info *wish = hints();
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    char name[64];
    size_t bytes = sizeof name;
    wish->caps = FI_TAGGED | FI_RMA;
    wish->domain_attr->threading = FI_THREAD_SAFE;
    IS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, wish, &info), 0);
    fi_freeinfo(wish);
    IS(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
    IS(fi_domain(fabric, info, &domain, NULL), 0);
    IS(fi_av_open(domain, &av_attr, &av, NULL), 0);
    IS(fi_cq_open(domain, &cq_attr, &cq, NULL), 0);
    IS(fi_endpoint(domain, info, &ep, NULL), 0);
    IS(fi_ep_bind(ep, &av->fid, 0), 0);
    IS(fi_ep_bind(ep, &cq->fid, FI_RECV | FI_TRANSMIT), 0);
    IS(fi_enable(ep), 0);
    memory = calloc(1, BYTES);
    IS(registers(), 0);
    IS(fi_getname(&ep->fid, name, &bytes), 0);
    IS(write(to, name, sizeof name), sizeof name);
    IS(read(from, name, sizeof name), sizeof name);
    IS(fi_av_insert(av, name, 1, &other, 0, NULL), 1);
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

static int state_of(pid_t child) {
    char name[64], line[512], state;
    snprintf(name, sizeof name, "/proc/%d/stat", child);
    FILE *file = fopen(name, "r");
    CHECK(file && fgets(line, sizeof line, file) && sscanf(line, "%*d %*s %c", &state) == 1);
    fclose(file);
    return state;
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
            IS(registers(), 0);
            CHECK(!kill(child, SIGCONT));
        }
    }
    /* Others went on all the time. */
    CHECK(looks > seen + 100);
    struct fid_mr *second = mr;
    IS(registers(), -FI_ENOKEY);
    mr = second;
    IS(fi_close(&domain->fid), -FI_EBUSY);
    IS(fi_close(&ep->fid), -FI_EBUSY);
    IS(fi_close(&mr->fid), -FI_EBUSY);
    CHECK(!kill(child, SIGCONT));
    /* A busy machine may take longer to let it end its access than a close waits. */
    for (int tries = 0; (closed = fi_close(&mr->fid)) == -FI_EBUSY && tries < 10; tries++) continue;
    IS(closed, 0);
    IS(registers(), 0);
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
