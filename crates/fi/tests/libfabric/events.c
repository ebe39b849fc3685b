/* What a program learns of those that read and write its memory: counters, of an endpoint and of a registration. */
#include "ends.h"

enum { KEY = 5, OTHER_KEY = 6 };

static struct fid_cntr *counter(void) {
    struct fid_cntr *made = NULL;
    struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    IS(fi_cntr_open(ends[1].domain, &attr, &made, NULL), 0);
    return made;
}

static struct fid_mr *registered(uint64_t key) {
    struct fid_mr *made = NULL;
    char *memory = ends[1].memory + (key == KEY ? 0 : BYTES / 2);
    IS(fi_mr_reg(ends[1].domain, memory, BYTES / 2, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, key, 0, &made, NULL), 0);
    return made;
}

static void ended(void *context) {
    IS(next(0, &entry, &error), 0);
    CHECK(entry.op_context == context);
}

/* Waits in steps, as the other end has to go on too. */
static void counts(struct fid_cntr *cntr, uint64_t value) {
    double until = now() + 60;
    while (fi_cntr_wait(cntr, value, 1)) {
        CHECK(now() < until);
        if (!is_auto) fi_cq_read(ends[0].cq, &entry, 0);
    }
    IS(fi_cntr_read(cntr), value);
    IS(fi_cntr_readerr(cntr), 0);
}

static void put(uint64_t key, size_t bytes, int is_told) {
    int context;
    struct iovec here = {ends[0].memory, bytes};
    struct fi_rma_iov there = {0, bytes, key};
    struct fi_msg_rma message = {.msg_iov = &here, .iov_count = 1, .addr = ends[0].other, .rma_iov = &there,
                                 .rma_iov_count = 1, .context = &context, .data = 77};
    IS(fi_writemsg(ends[0].ep, &message, FI_COMPLETION | (is_told ? FI_REMOTE_CQ_DATA : 0)), 0);
    ended(&context);
}

static void get(uint64_t key, size_t bytes) {
    int context;
    struct iovec here = {ends[0].memory, bytes};
    struct fi_rma_iov there = {0, bytes, key};
    struct fi_msg_rma message = {.msg_iov = &here, .iov_count = 1, .addr = ends[0].other, .rma_iov = &there,
                                 .rma_iov_count = 1, .context = &context};
    IS(fi_readmsg(ends[0].ep, &message, FI_COMPLETION), 0);
    ended(&context);
}

static void combine(enum fi_op op, int is_fetched) {
    int context;
    uint64_t operand = 3, before = 0;
    struct fi_ioc here = {&operand, 1}, back = {&before, 1};
    struct fi_rma_ioc there = {8, 1, KEY};
    struct fi_msg_atomic message = {.msg_iov = &here, .iov_count = 1, .addr = ends[0].other, .rma_iov = &there,
                                    .rma_iov_count = 1, .datatype = FI_UINT64, .op = op, .context = &context};
    if (is_fetched)
        IS(fi_fetch_atomicmsg(ends[0].ep, &message, &back, NULL, 1, FI_COMPLETION), 0);
    else
        IS(fi_atomicmsg(ends[0].ep, &message, FI_COMPLETION), 0);
    ended(&context);
}

int main(int count, char **arguments) {
    open_ends(count, arguments, FI_MSG | FI_RMA | FI_ATOMIC | FI_RMA_EVENT, 0);
    CHECK(info->caps & FI_RMA_EVENT && info->rx_attr->caps & FI_RMA_EVENT);
    struct fid_cntr *reads = counter(), *writes = counter(), *both = counter();
    IS(fi_ep_bind(ends[1].ep, &reads->fid, FI_REMOTE_READ), 0);
    IS(fi_ep_bind(ends[1].ep, &writes->fid, FI_REMOTE_WRITE), 0);
    struct fid_mr *mr = registered(KEY), *other = registered(OTHER_KEY);
    IS(fi_mr_bind(mr, &both->fid, 0), -FI_EBADFLAGS);
    IS(fi_mr_bind(mr, &both->fid, FI_REMOTE_READ | FI_REMOTE_WRITE), 0);
    IS(fi_mr_bind(mr, &reads->fid, FI_REMOTE_READ), -FI_EINVAL);
    IS(fi_close(&both->fid), -FI_EBUSY);
    int done = 0;
    for (size_t bytes = 1; bytes <= BYTES / 2; bytes *= 32) {
        fill(ends[0].memory, bytes, 3);
        put(KEY, bytes, 0);
        CHECK(!memcmp(ends[0].memory, ends[1].memory, bytes));
        get(KEY, bytes);
        put(OTHER_KEY, bytes, 0);
        done++;
    }
    counts(writes, 2 * done);
    counts(reads, done);
    counts(both, 2 * done);
    combine(FI_SUM, 0);
    counts(writes, 2 * done + 1);
    combine(FI_SUM, 1);
    counts(reads, done + 1);
    counts(both, 2 * done + 2);
    /* One that comes with a word is counted once. */
    put(KEY, 100, 1);
    IS(next(1, &entry, &error), 0);
    CHECK(entry.data == 77 && entry.flags & FI_REMOTE_CQ_DATA);
    counts(writes, 2 * done + 2);
    counts(both, 2 * done + 3);
    /* What is refused is not counted. */
    int context;
    IS(fi_write(ends[0].ep, ends[0].memory, BYTES, NULL, ends[0].other, 0, KEY, &context), 0);
    CHECK(next(0, &entry, &error) < 0 && error.op_context == &context);
    counts(both, 2 * done + 3);
    IS(fi_close(&mr->fid), 0);
    IS(fi_close(&other->fid), 0);
    IS(fi_close(&both->fid), 0);
    IS(fi_close(&reads->fid), -FI_EBUSY);
    for (int at = 0; at < 2; at++) {
        IS(fi_close(&ends[at].ep->fid), 0);
        ends[at].ep = NULL;
    }
    IS(fi_close(&reads->fid), 0);
    IS(fi_close(&writes->fid), 0);
    close_ends();
    return 0;
}
