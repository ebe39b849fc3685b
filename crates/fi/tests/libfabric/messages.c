/* Everything that messages can. */
#include "ends.h"
#include <poll.h>

static void lengths(void) {
    int contexts[4];
    for (size_t bytes = 0; bytes <= BYTES; bytes = bytes ? bytes * 2 : 1) {
        fill(ends[0].memory, bytes, 3);
        memset(ends[1].memory, 0, bytes + 1);
        /* Received before it is sent, and after. */
        IS(fi_trecv(ends[1].ep, ends[1].memory, bytes, NULL, FI_ADDR_UNSPEC, 5, 0, &contexts[0]), 0);
        IS(fi_tsend(ends[0].ep, ends[0].memory, bytes, NULL, ends[0].other, 5, &contexts[1]), 0);
        is_received(1, &contexts[0], bytes, 5, FI_RECV | FI_TAGGED);
        CHECK(!memcmp(ends[0].memory, ends[1].memory, bytes) && !ends[1].memory[bytes]);
        memset(ends[1].memory, 0, bytes + 1);
        IS(fi_tsend(ends[0].ep, ends[0].memory, bytes, NULL, ends[0].other, ~0ULL, &contexts[1]), 0);
        for (int round = 0; round < 100; round++) fi_cq_read(ends[1].cq, &entry, 0);
        IS(fi_trecv(ends[1].ep, ends[1].memory, bytes, NULL, ends[1].other, 0, ~0ULL, &contexts[2]), 0);
        is_received(1, &contexts[2], bytes, ~0ULL, FI_RECV | FI_TAGGED);
        CHECK(!memcmp(ends[0].memory, ends[1].memory, bytes) && !ends[1].memory[bytes]);
    }
    nothing_more(0);
}

static void untagged(void) {
    int contexts[4];
    /* Neither kind takes what is of the other. */
    IS(fi_trecv(ends[1].ep, ends[1].memory, 100, NULL, FI_ADDR_UNSPEC, 0, ~0ULL, &contexts[0]), 0);
    IS(fi_recv(ends[1].ep, ends[1].memory + 100, 100, NULL, FI_ADDR_UNSPEC, &contexts[1]), 0);
    fill(ends[0].memory, 100, 1);
    IS(fi_inject(ends[0].ep, ends[0].memory, 60, ends[0].other), 0);
    is_received(1, &contexts[1], 60, 0, FI_RECV | FI_MSG);
    CHECK(!memcmp(ends[0].memory, ends[1].memory + 100, 60));
    IS(fi_tinject(ends[0].ep, ends[0].memory, 70, ends[0].other, 9), 0);
    is_received(1, &contexts[0], 70, 9, FI_RECV | FI_TAGGED);
    /* Pieces. */
    struct iovec out[3] = {{ends[0].memory, 7}, {ends[0].memory + 50, 0}, {ends[0].memory + 10, 30}};
    struct iovec in[2] = {{ends[1].memory, 20}, {ends[1].memory + 500, 20}};
    IS(fi_recvv(ends[1].ep, in, NULL, 2, FI_ADDR_UNSPEC, &contexts[2]), 0);
    struct fi_msg message = {.msg_iov = out, .iov_count = 3, .addr = ends[0].other, .context = &contexts[3]};
    IS(fi_sendmsg(ends[0].ep, &message, FI_COMPLETION | FI_INJECT), 0);
    memset(ends[0].memory, 0, 7);
    is_received(1, &contexts[2], 37, 0, FI_RECV | FI_MSG);
    fill(ends[0].memory, 100, 1);
    CHECK(!memcmp(ends[1].memory, ends[0].memory, 7) && !memcmp(ends[1].memory + 7, ends[0].memory + 10, 13));
    CHECK(!memcmp(ends[1].memory + 500, ends[0].memory + 23, 17));
    IS(next(0, &entry, &error), 0);
    CHECK(entry.op_context == &contexts[3] && entry.flags & FI_SEND && entry.flags & FI_MSG);
}

static void failures(void) {
    int contexts[4];
    IS(fi_trecv(ends[1].ep, ends[1].memory, 10, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]), 0);
    fill(ends[0].memory, 100, 9);
    IS(fi_tinject(ends[0].ep, ends[0].memory, 100, ends[0].other, 1), 0);
    IS(next(1, &entry, &error), -FI_ETRUNC);
    CHECK(error.op_context == &contexts[0] && error.len == 10 && error.olen == 90 && error.tag == 1);
    CHECK(!memcmp(ends[1].memory, ends[0].memory, 10));
    IS(fi_trecv(ends[1].ep, ends[1].memory, 10, NULL, FI_ADDR_UNSPEC, 2, 0, &contexts[1]), 0);
    IS(fi_cancel(&ends[1].ep->fid, &contexts[1]), 0);
    IS(next(1, &entry, &error), -FI_ECANCELED);
    CHECK(error.op_context == &contexts[1]);
    IS(fi_cancel(&ends[1].ep->fid, &contexts[1]), -FI_ENOENT);
    IS(fi_tinject(ends[0].ep, ends[0].memory, info->tx_attr->inject_size + 1, ends[0].other, 1), -FI_EMSGSIZE);
    IS(fi_tinject(ends[0].ep, ends[0].memory, 1, 55, 1), -FI_EINVAL);
    struct iovec many[9] = {0};
    IS(fi_tsendv(ends[0].ep, many, NULL, 9, ends[0].other, 1, NULL), -FI_EINVAL);
    CHECK(fi_cq_strerror(ends[0].cq, FI_ETRUNC, NULL, NULL, 0));
}

static void looks(void) {
    int context;
    struct fi_msg_tagged look = {.addr = FI_ADDR_UNSPEC, .tag = 33, .context = &context};
    IS(fi_trecvmsg(ends[1].ep, &look, FI_PEEK), 0);
    IS(next(1, &entry, &error), -FI_ENOMSG);
    CHECK(error.op_context == &context);
    IS(fi_tinject(ends[0].ep, ends[0].memory, 44, ends[0].other, 33), 0);
    double until = now() + 60;
    for (;;) {
        IS(fi_trecvmsg(ends[1].ep, &look, FI_PEEK), 0);
        int result = next(1, &entry, &error);
        if (!result) break;
        CHECK(result == -FI_ENOMSG && now() < until);
    }
    CHECK(entry.op_context == &context && entry.len == 44 && entry.tag == 33);
    IS(fi_trecv(ends[1].ep, ends[1].memory, 44, NULL, FI_ADDR_UNSPEC, 33, 0, &context), 0);
    is_received(1, &context, 44, 33, FI_RECV | FI_TAGGED);
}

/* Sends a message, and looks for it until it is there. */
static void find(struct fi_msg_tagged *look, uint64_t flags, size_t bytes) {
    IS(fi_tinject(ends[0].ep, ends[0].memory, bytes, ends[0].other, look->tag), 0);
    double until = now() + 60;
    for (;;) {
        IS(fi_trecvmsg(ends[1].ep, look, FI_PEEK | flags), 0);
        int result = next(1, &entry, &error);
        if (!result) break;
        CHECK(result == -FI_ENOMSG && now() < until);
    }
    CHECK(entry.op_context == look->context && entry.len == bytes && entry.tag == look->tag);
}

static void claims(void) {
    int contexts[3];
    fill(ends[0].memory, 100, 7);
    struct fi_msg_tagged look = {.addr = FI_ADDR_UNSPEC, .tag = 34, .context = &contexts[0]};
    find(&look, FI_CLAIM, 40);
    /* Nobody else gets what was claimed. */
    struct fi_msg_tagged other = {.addr = FI_ADDR_UNSPEC, .tag = 34, .context = &contexts[1]};
    IS(fi_trecvmsg(ends[1].ep, &other, FI_PEEK), 0);
    IS(next(1, &entry, &error), -FI_ENOMSG);
    struct iovec room = {ends[1].memory, 100};
    look.msg_iov = &room;
    look.iov_count = 1;
    IS(fi_trecvmsg(ends[1].ep, &look, FI_CLAIM), 0);
    is_received(1, &contexts[0], 40, 34, FI_RECV | FI_TAGGED);
    CHECK(!memcmp(ends[0].memory, ends[1].memory, 40));
    IS(fi_trecvmsg(ends[1].ep, &look, FI_CLAIM), -FI_EINVAL);
    /* Dropped when it was claimed, and at once. */
    other.context = &contexts[1];
    find(&other, FI_CLAIM, 50);
    IS(fi_trecvmsg(ends[1].ep, &other, FI_CLAIM | FI_DISCARD), 0);
    IS(next(1, &entry, &error), 0);
    CHECK(entry.op_context == &contexts[1] && entry.tag == 34 && entry.len == 50);
    find(&other, FI_DISCARD, 60);
    IS(fi_trecvmsg(ends[1].ep, &other, FI_PEEK), 0);
    IS(next(1, &entry, &error), -FI_ENOMSG);
}

/* What was claimed is still there when there was no room to receive it. */
static void refused_claims(void) {
    int contexts[2];
    fill(ends[0].memory, 100, 8);
    struct iovec room = {ends[1].memory, 100};
    struct fi_msg_tagged look = {.addr = FI_ADDR_UNSPEC, .tag = 35, .context = &contexts[0]};
    find(&look, FI_CLAIM, 40);
    look.msg_iov = &room;
    look.iov_count = 1;
    long posted = 0;
    ssize_t result;
    while (!(result = fi_trecv(ends[1].ep, ends[1].memory, 8, NULL, FI_ADDR_UNSPEC, 77, 0, &contexts[1])))
        CHECK(++posted < 1 << 24);
    IS(result, -FI_EAGAIN);
    IS(fi_trecvmsg(ends[1].ep, &look, FI_CLAIM), -FI_EAGAIN);
    IS(fi_cancel(&ends[1].ep->fid, &contexts[1]), 0);
    IS(next(1, &entry, &error), -FI_ECANCELED);
    IS(fi_trecvmsg(ends[1].ep, &look, FI_CLAIM), 0);
    is_received(1, &contexts[0], 40, 35, FI_RECV | FI_TAGGED);
    CHECK(!memcmp(ends[0].memory, ends[1].memory, 40));
    while (--posted > 0) {
        IS(fi_cancel(&ends[1].ep->fid, &contexts[1]), 0);
        IS(next(1, &entry, &error), -FI_ECANCELED);
    }
}

static void itself(void) {
    for (size_t bytes = 1; bytes <= BYTES; bytes *= 64) {
        int contexts[2];
        fill(ends[0].memory, bytes, 2);
        IS(fi_trecv(ends[0].ep, ends[0].memory + BYTES, bytes, NULL, ends[0].self, 3, 0, &contexts[0]), 0);
        IS(fi_tsend(ends[0].ep, ends[0].memory, bytes, NULL, ends[0].self, 3, &contexts[1]), 0);
        is_received(0, &contexts[0], bytes, 3, FI_RECV | FI_TAGGED);
        CHECK(!memcmp(ends[0].memory, ends[0].memory + BYTES, bytes));
    }
}

static void words(void) {
    int contexts[3];
    for (size_t bytes = 0; bytes <= BYTES; bytes = bytes ? bytes * 32 : 1) {
        IS(fi_trecv(ends[1].ep, ends[1].memory, bytes, NULL, FI_ADDR_UNSPEC, 6, 0, &contexts[0]), 0);
        IS(fi_tsenddata(ends[0].ep, ends[0].memory, bytes, NULL, ~0ULL - bytes, ends[0].other, 6, &contexts[1]), 0);
        is_received(1, &contexts[0], bytes, 6, FI_RECV | FI_TAGGED);
        CHECK(entry.data == ~0ULL - bytes && entry.flags & FI_REMOTE_CQ_DATA);
    }
    IS(fi_recv(ends[1].ep, ends[1].memory, 10, NULL, FI_ADDR_UNSPEC, &contexts[0]), 0);
    IS(fi_injectdata(ends[0].ep, ends[0].memory, 10, 77, ends[0].other), 0);
    is_received(1, &contexts[0], 10, 0, FI_RECV | FI_MSG);
    CHECK(entry.data == 77 && entry.flags & FI_REMOTE_CQ_DATA);
    /* One that is delivered ends when it was received. */
    struct iovec piece = {ends[0].memory, 10};
    struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = 1, .addr = ends[0].other, .tag = 12};
    message.context = &contexts[2];
    IS(fi_tsendmsg(ends[0].ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE), 0);
    for (int round = 0; round < 1000; round++) {
        IS(fi_cq_read(ends[0].cq, &entry, 1), -FI_EAGAIN);
        if (!is_auto) fi_cq_read(ends[1].cq, &entry, 0);
    }
    IS(fi_trecv(ends[1].ep, ends[1].memory, 10, NULL, FI_ADDR_UNSPEC, 12, 0, &contexts[0]), 0);
    is_received(1, &contexts[0], 10, 12, FI_RECV | FI_TAGGED);
    CHECK(!(entry.flags & FI_REMOTE_CQ_DATA));
    IS(next(0, &entry, &error), 0);
    CHECK(entry.op_context == &contexts[2]);
}

static void many(void) {
    int context;
    size_t left = 64, told = 0, bytes = sizeof told;
    IS(fi_setopt(&ends[1].ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &left, sizeof left), 0);
    IS(fi_getopt(&ends[1].ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &told, &bytes), 0);
    CHECK(told == left && bytes == sizeof told);
    struct iovec room = {ends[1].memory, 1000};
    struct fi_msg message = {.msg_iov = &room, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &context};
    IS(fi_recvmsg(ends[1].ep, &message, FI_MULTI_RECV), 0);
    size_t at = 0;
    for (int round = 0; round < 10; round++) {
        fill(ends[0].memory, 95, round);
        if (round % 2)
            IS(fi_inject(ends[0].ep, ends[0].memory, 95, ends[0].other), 0);
        else
            IS(fi_injectdata(ends[0].ep, ends[0].memory, 95, round, ends[0].other), 0);
        is_received(1, &context, 95, 0, FI_RECV | FI_MSG);
        CHECK(entry.buf == ends[1].memory + at && !memcmp(entry.buf, ends[0].memory, 95));
        CHECK(round % 2 || (entry.data == (uint64_t)round && entry.flags & FI_REMOTE_CQ_DATA));
        at += 95;
    }
    /* 50 bytes are too few for another one. */
    IS(next(1, &entry, &error), 0);
    CHECK(entry.op_context == &context && entry.flags & FI_MULTI_RECV);
    IS(fi_recvmsg(ends[1].ep, &message, FI_MULTI_RECV), 0);
    IS(fi_cancel(&ends[1].ep->fid, &context), 0);
    IS(next(1, &entry, &error), -FI_ECANCELED);
    CHECK(error.op_context == &context);
}

static void sources(void) {
    int context;
    fi_addr_t from = 99;
    IS(fi_trecv(ends[1].ep, ends[1].memory, 8, NULL, FI_ADDR_UNSPEC, 8, 0, &context), 0);
    IS(fi_tinject(ends[0].ep, ends[0].memory, 8, ends[0].other, 8), 0);
    double until = now() + 60;
    while (fi_cq_readfrom(ends[1].cq, &entry, 1, &from) != 1) CHECK(now() < until);
    CHECK(from == ends[1].other);
}

static void waits(void) {
    int context, descriptor;
    IS(fi_cq_sread(ends[1].cq, &entry, 1, NULL, 20), -FI_EAGAIN);
    struct fid *fids[1] = {&ends[1].cq->fid};
    IS(fi_control(&ends[1].cq->fid, FI_GETWAIT, &descriptor), 0);
    IS(fi_trecv(ends[1].ep, ends[1].memory, 8, NULL, FI_ADDR_UNSPEC, 8, 0, &context), 0);
    double until = now() + 60;
    while (fi_trywait(fabric, fids, 1) == -FI_EAGAIN) CHECK(now() < until);
    struct pollfd wait = {.fd = descriptor, .events = POLLIN};
    IS(fi_tinject(ends[0].ep, ends[0].memory, 8, ends[0].other, 8), 0);
    IS(poll(&wait, 1, 60000), 1);
    IS(fi_cq_sread(ends[1].cq, &entry, 1, NULL, 60000), 1);
    CHECK(entry.op_context == &context);
    /* Whoever is the next to sleep returns at once, and only once. */
    IS(fi_cq_signal(ends[1].cq), 0);
    IS(fi_cq_sread(ends[1].cq, &entry, 1, NULL, 60000), -FI_ECANCELED);
    IS(fi_cq_sread(ends[1].cq, &entry, 1, NULL, 20), -FI_EAGAIN);
    /* Counters count all of it. */
    uint64_t received = fi_cntr_read(ends[1].received);
    CHECK(received > 10 && fi_cntr_read(ends[0].sent) > 10);
    IS(fi_cntr_readerr(ends[1].received), 2);
    IS(fi_trecv(ends[1].ep, ends[1].memory, 8, NULL, FI_ADDR_UNSPEC, 8, 0, &context), 0);
    IS(fi_cntr_wait(ends[1].received, received + 1, 20), -FI_ETIMEDOUT);
    IS(fi_tinject(ends[0].ep, ends[0].memory, 8, ends[0].other, 8), 0);
    IS(fi_cntr_wait(ends[1].received, received + 1, 60000), 0);
    IS(next(1, &entry, &error), 0);
    IS(fi_cntr_set(ends[1].received, 7), 0);
    IS(fi_cntr_add(ends[1].received, 3), 0);
    IS(fi_cntr_read(ends[1].received), 10);
}

static void events(void) {
    struct fid_eq *eq;
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_FD};
    struct fi_eq_entry out = {.data = 7}, in = {0};
    uint32_t event = 0;
    IS(fi_eq_open(fabric, &attr, &eq, NULL), 0);
    IS(fi_eq_sread(eq, &event, &in, sizeof in, 20, 0), -FI_EAGAIN);
    IS(fi_eq_write(eq, FI_NOTIFY, &out, sizeof out, 0), sizeof out);
    IS(fi_eq_read(eq, &event, &in, sizeof in, FI_PEEK), sizeof in);
    IS(fi_eq_sread(eq, &event, &in, sizeof in, 1000, 0), sizeof in);
    CHECK(event == FI_NOTIFY && in.data == 7);
    IS(fi_eq_read(eq, &event, &in, sizeof in, 0), -FI_EAGAIN);
    IS(fi_close(&eq->fid), 0);
}

int main(int count, char **arguments) {
    open_ends(count, arguments, FI_TAGGED | FI_MSG | FI_DIRECTED_RECV | FI_SOURCE, 0);
    lengths();
    untagged();
    failures();
    looks();
    claims();
    itself();
    words();
    many();
    sources();
    waits();
    refused_claims();
    events();
    close_ends();
    return 0;
}
