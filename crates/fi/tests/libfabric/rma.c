/* What one endpoint does in the memory of another: with keys and offsets of the program's, or with addresses. */
#include "ends.h"

static struct fid_mr *mr;
/* Where in the registration something lies, as operations say it. */
static uint64_t base, key;

static struct fid_mr *registered(struct end *end, void *memory, size_t bytes, uint64_t access, uint64_t wanted) {
    struct fid_mr *made = NULL;
    IS(fi_mr_reg(end->domain, memory, bytes, access, 0, wanted, 0, &made, NULL), 0);
    return made;
}

static void is_done(int at, void *context, uint64_t flags) {
    IS(next(at, &entry, &error), 0);
    CHECK(entry.op_context == context);
    IS(entry.flags & (FI_RMA | FI_READ | FI_WRITE), FI_RMA | flags);
}

/* Sends with completions, whatever the queue is bound for. */
static void transfer(int is_write, size_t at, size_t bytes, int result) {
    int context;
    struct iovec here = {ends[0].memory, bytes};
    struct fi_rma_iov there = {base + at, bytes, key};
    struct fi_msg_rma message = {.msg_iov = &here, .iov_count = 1, .addr = ends[0].other, .rma_iov = &there,
                                 .rma_iov_count = 1, .context = &context};
    if (is_write)
        IS(fi_writemsg(ends[0].ep, &message, FI_COMPLETION), 0);
    else
        IS(fi_readmsg(ends[0].ep, &message, FI_COMPLETION), 0);
    if (result) {
        IS(next(0, &entry, &error), result);
        CHECK(error.op_context == &context);
    } else {
        is_done(0, &context, is_write ? FI_WRITE : FI_READ);
    }
}

static void lengths(void) {
    for (size_t bytes = 0; bytes <= BYTES / 2; bytes = bytes ? bytes * 2 : 1) {
        fill(ends[0].memory, bytes, 3);
        memset(ends[1].memory, 0, BYTES);
        transfer(1, 64, bytes, 0);
        CHECK(!memcmp(ends[0].memory, ends[1].memory + 64, bytes) && !ends[1].memory[64 + bytes]);
        memset(ends[0].memory, 0, bytes + 1);
        transfer(0, 64, bytes, 0);
        CHECK(!memcmp(ends[0].memory, ends[1].memory + 64, bytes) && !ends[0].memory[bytes]);
    }
}

static void forms(void) {
    int contexts[3];
    uint64_t written = fi_cntr_read(ends[0].sent);
    fill(ends[0].memory, 4096, 5);
    memset(ends[1].memory, 0, BYTES);
    IS(fi_inject_write(ends[0].ep, ends[0].memory, 100, ends[0].other, base, key), 0);
    struct iovec pieces[2] = {{ends[0].memory + 10, 20}, {ends[0].memory + 50, 30}};
    IS(fi_writev(ends[0].ep, pieces, NULL, 2, ends[0].other, base + 200, key, &contexts[0]), 0);
    IS(fi_writedata(ends[0].ep, ends[0].memory, 40, NULL, 4711, ends[0].other, base + 300, key, &contexts[0]), 0);
    IS(next(1, &entry, &error), 0);
    CHECK(entry.data == 4711 && entry.len == 40);
    IS(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    IS(fi_inject_writedata(ends[0].ep, ends[0].memory, 50, 4712, ends[0].other, base + 400, key), 0);
    IS(next(1, &entry, &error), 0);
    CHECK(entry.data == 4712 && entry.len == 50);
    /* All of them were counted when they were there. */
    double until = now() + 60;
    while (fi_cntr_read(ends[0].sent) < written + 4) {
        if (!is_auto) fi_cq_read(ends[1].cq, &entry, 0);
        CHECK(now() < until);
    }
    CHECK(!memcmp(ends[1].memory, ends[0].memory, 100));
    CHECK(!memcmp(ends[1].memory + 200, ends[0].memory + 10, 20) && !memcmp(ends[1].memory + 220, ends[0].memory + 50, 30));
    CHECK(!memcmp(ends[1].memory + 300, ends[0].memory, 40) && !memcmp(ends[1].memory + 400, ends[0].memory, 50));
    nothing_more(0);
    struct iovec into[2] = {{ends[0].memory + 5000, 60}, {ends[0].memory + 6000, 40}};
    struct fi_rma_iov there = {base, 100, key};
    struct fi_msg_rma message = {.msg_iov = into, .iov_count = 2, .addr = ends[0].other, .rma_iov = &there,
                                 .rma_iov_count = 1, .context = &contexts[1]};
    IS(fi_readmsg(ends[0].ep, &message, FI_COMPLETION), 0);
    is_done(0, &contexts[1], FI_READ);
    CHECK(!memcmp(ends[0].memory + 5000, ends[0].memory, 60) && !memcmp(ends[0].memory + 6000, ends[0].memory + 60, 40));
    there.len = 99;
    IS(fi_readmsg(ends[0].ep, &message, FI_COMPLETION), -FI_EINVAL);
}

static void refusals(void) {
    transfer(1, BYTES - 10, 11, -FI_EFAULT);
    transfer(0, BYTES - 10, 10, 0);
    key ^= 1;
    transfer(1, 0, 8, -FI_ENOKEY);
    key ^= 1;
    /* What may be read only. */
    struct fid_mr *other = registered(&ends[1], ends[1].memory + BYTES, 4096, FI_REMOTE_READ, 99);
    uint64_t first = key, where = base;
    key = fi_mr_key(other);
    if (base) base += BYTES;
    transfer(0, 0, 8, 0);
    transfer(1, 0, 8, -FI_EACCES);
    IS(fi_close(&other->fid), 0);
    transfer(0, 0, 8, -FI_ENOKEY);
    (key = first, base = where);
    if (!base) {
        IS(fi_mr_reg(ends[1].domain, ends[1].memory, 8, FI_REMOTE_READ, 0, key, 0, &other, NULL), -FI_ENOKEY);
    }
    IS(fi_mr_reg(ends[1].domain, ends[1].memory, 8, FI_REMOTE_READ, 5, 1234, 0, &other, NULL), -FI_EINVAL);
}

/* Whoever does not read its queue is told of no more than it has room for: its peers have to wait. */
static void unread(void) {
    long sent = 0, idle = 0, sum = 0, most = 1 << 19;
    while (sent < most && idle < 50000) {
        ssize_t result = fi_inject_writedata(ends[0].ep, ends[0].memory, 8, sent, ends[0].other, base, key);
        if (result) {
            IS(result, -FI_EAGAIN);
            idle++;
        } else {
            sent++;
            idle = 0;
        }
        fi_cntr_read(ends[0].sent);
        fi_cntr_read(ends[1].received);
    }
    CHECK(sent < most);
    for (long at = 0; at < sent; at++) {
        IS(next(1, &entry, &error), 0);
        CHECK(entry.flags & FI_REMOTE_CQ_DATA);
        sum += entry.data;
    }
    IS(sum, sent * (sent - 1) / 2);
}

int main(int count, char **arguments) {
    int is_by_address = count > 2 && !strcmp(arguments[2], "addresses");
    open_ends(count, arguments, FI_MSG | FI_RMA, is_by_address ? FI_MR_VIRT_ADDR | FI_MR_PROV_KEY : 0);
    int has_addresses = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
    IS(!!has_addresses, is_by_address);
    mr = registered(&ends[1], ends[1].memory, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 17);
    key = fi_mr_key(mr);
    if (!is_by_address) IS(key, 17);
    base = is_by_address ? (uintptr_t)ends[1].memory : 0;
    lengths();
    forms();
    refusals();
    if (is_by_address) unread();
    IS(fi_close(&mr->fid), 0);
    transfer(0, 0, 8, -FI_ENOKEY);
    close_ends();
    return 0;
}
