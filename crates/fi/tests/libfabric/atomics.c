/* Atomic operations in the memory of another: what they do, and what a query refuses is refused. */
#include "ends.h"

static uint64_t *there;
static fi_addr_t to;
static int context;

static void ended(void) {
    IS(next(0, &entry, &error), 0);
    CHECK(entry.op_context == &context && entry.flags & FI_ATOMIC);
}

static uint64_t fetched(int op, uint64_t operand) {
    uint64_t *room = (uint64_t *)ends[0].memory;
    room[0] = operand;
    struct fi_ioc from = {room, 1}, before = {room + 1, 1};
    struct fi_rma_ioc where = {8, 1, 17};
    struct fi_msg_atomic message = {.msg_iov = &from, .iov_count = 1, .addr = to, .rma_iov = &where, .rma_iov_count = 1,
                                    .datatype = FI_UINT64, .op = op, .context = &context};
    IS(fi_fetch_atomicmsg(ends[0].ep, &message, &before, NULL, 1, FI_COMPLETION), 0);
    ended();
    return room[1];
}

static uint64_t swapped(int op, uint64_t expected, uint64_t new) {
    uint64_t *room = (uint64_t *)ends[0].memory;
    (room[0] = new, room[1] = expected);
    struct fi_ioc from = {room, 1}, compare = {room + 1, 1}, before = {room + 2, 1};
    struct fi_rma_ioc where = {8, 1, 17};
    struct fi_msg_atomic message = {.msg_iov = &from, .iov_count = 1, .addr = to, .rma_iov = &where, .rma_iov_count = 1,
                                    .datatype = FI_UINT64, .op = op, .context = &context};
    IS(fi_compare_atomicmsg(ends[0].ep, &message, &compare, NULL, 1, &before, NULL, 1, FI_COMPLETION), 0);
    ended();
    return room[2];
}

/* One operation on memory with this key; an error as a negative number. */
static int tried(uint64_t key, int op, int is_fetched) {
    uint64_t *room = (uint64_t *)ends[0].memory;
    room[0] = 1;
    struct fi_ioc from = {room, 1}, before = {room + 1, 1};
    struct fi_rma_ioc where = {0, 1, key};
    struct fi_msg_atomic message = {.msg_iov = &from, .iov_count = 1, .addr = to, .rma_iov = &where, .rma_iov_count = 1,
                                    .datatype = FI_UINT64, .op = op, .context = &context};
    if (is_fetched)
        IS(fi_fetch_atomicmsg(ends[0].ep, &message, &before, NULL, 1, FI_COMPLETION), 0);
    else
        IS(fi_atomicmsg(ends[0].ep, &message, FI_COMPLETION), 0);
    return next(0, &entry, &error);
}

/* Memory that may be read only is not changed by them, and what may be written only does not come back. */
static void rights(void) {
    struct fid_mr *readable, *writable;
    uint64_t *one = (uint64_t *)ends[1].memory + 1000, *other = one + 1;
    (*one = 40, *other = 50);
    IS(fi_mr_reg(ends[1].domain, one, 8, FI_REMOTE_READ, 0, 18, 0, &readable, NULL), 0);
    IS(fi_mr_reg(ends[1].domain, other, 8, FI_REMOTE_WRITE, 0, 19, 0, &writable, NULL), 0);
    IS(tried(18, FI_SUM, 0), -FI_EACCES);
    IS(tried(18, FI_SUM, 1), -FI_EACCES);
    IS(tried(18, FI_ATOMIC_READ, 1), 0);
    CHECK(*one == 40 && ((uint64_t *)ends[0].memory)[1] == 40);
    IS(tried(19, FI_SUM, 1), -FI_EACCES);
    IS(tried(19, FI_ATOMIC_READ, 1), -FI_EACCES);
    IS(tried(19, FI_SUM, 0), 0);
    IS(*other, 51);
    IS(fi_close(&readable->fid), 0);
    IS(fi_close(&writable->fid), 0);
}

static void queries(void) {
    struct fi_atomic_attr attr;
    IS(fi_query_atomic(ends[0].domain, FI_INT32, FI_SUM, &attr, 0), 0);
    CHECK(attr.size == 4 && attr.count >= 64);
    IS(fi_query_atomic(ends[0].domain, FI_DOUBLE, FI_BXOR, &attr, 0), -FI_EOPNOTSUPP);
    IS(fi_query_atomic(ends[0].domain, FI_DOUBLE_COMPLEX, FI_SUM, &attr, 0), -FI_EOPNOTSUPP);
    IS(fi_query_atomic(ends[0].domain, FI_INT32, FI_CSWAP, &attr, 0), -FI_EOPNOTSUPP);
    IS(fi_query_atomic(ends[0].domain, FI_INT32, FI_CSWAP, &attr, FI_COMPARE_ATOMIC), 0);
    IS(fi_query_atomic(ends[0].domain, FI_INT32, FI_ATOMIC_READ, &attr, FI_FETCH_ATOMIC), 0);
    size_t count = 0;
    IS(fi_atomicvalid(ends[0].ep, FI_UINT64, FI_MAX, &count), 0);
    CHECK(count >= 64);
    IS(fi_fetch_atomicvalid(ends[0].ep, FI_UINT64, FI_CSWAP, &count), -FI_EOPNOTSUPP);
}

int main(int count, char **arguments) {
    struct fid_mr *mr;
    open_ends(count, arguments, FI_MSG | FI_RMA | FI_ATOMIC, 0);
    to = ends[0].other;
    there = (uint64_t *)ends[1].memory;
    IS(fi_mr_reg(ends[1].domain, there, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 17, 0, &mr, NULL), 0);
    queries();
    there[1] = 5;
    IS(fetched(FI_SUM, 7), 5);
    IS(fetched(FI_ATOMIC_READ, 0), 12);
    IS(fetched(FI_ATOMIC_WRITE, 3), 12);
    IS(fetched(FI_MAX, 9), 3);
    IS(fetched(FI_BOR, 6), 9);
    IS(fetched(FI_ATOMIC_READ, 0), 15);
    IS(swapped(FI_CSWAP, 14, 1), 15);
    IS(swapped(FI_CSWAP, 15, 2), 15);
    IS(swapped(FI_CSWAP_NE, 3, 4), 2);
    IS(fetched(FI_ATOMIC_READ, 0), 4);
    /* Without a result, many at once, in order. */
    uint64_t written = fi_cntr_read(ends[0].sent), one = 1;
    for (int round = 0; round < 100; round++) {
        one = 1;
        IS(fi_inject_atomic(ends[0].ep, &one, 1, to, 8, 17, FI_UINT64, FI_SUM), 0);
        one = 1000;
    }
    double until = now() + 60;
    while (fi_cntr_read(ends[0].sent) < written + 100) {
        if (!is_auto) fi_cq_read(ends[1].cq, &entry, 0);
        CHECK(now() < until);
    }
    IS(fetched(FI_ATOMIC_READ, 0), 104);
    IS(fi_inject_atomic(ends[0].ep, &one, 1, to, 8, 17, FI_DOUBLE_COMPLEX, FI_SUM), -FI_EOPNOTSUPP);
    rights();
    IS(fi_close(&mr->fid), 0);
    close_ends();
    return 0;
}
