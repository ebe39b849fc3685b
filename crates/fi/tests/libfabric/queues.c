/* Completion queues of every format, and objects to wait with: which there are, and which are refused. */
#define _GNU_SOURCE
#include "ends.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static union {
    struct fi_cq_entry context;
    struct fi_cq_msg_entry msg;
    struct fi_cq_data_entry data;
    struct fi_cq_tagged_entry tagged;
    char bytes[4 * sizeof(struct fi_cq_tagged_entry)];
} entries;

/* Reads so many entries of an end, and sees that nothing behind them was written to. */
static void read_all(int at, size_t count, size_t bytes) {
    double until = now() + 60;
    ssize_t got;
    memset(entries.bytes, 0x5a, sizeof entries.bytes);
    do {
        got = fi_cq_read(ends[at].cq, entries.bytes, count);
        fi_cq_read(ends[1 - at].cq, NULL, 0);
        CHECK(now() < until && (got > 0 || got == -FI_EAGAIN));
    } while (got <= 0);
    IS(got, count);
    for (size_t byte = count * bytes; byte < sizeof entries.bytes; byte++) CHECK(entries.bytes[byte] == 0x5a);
}

static void format(enum fi_cq_format which, size_t bytes) {
    int contexts[2];
    cq_format = which;
    open_ends(0, NULL, FI_TAGGED | FI_MSG, 0);
    for (int at = 0; at < 2; at++) {
        IS(fi_trecv(ends[1].ep, ends[1].memory, 100, NULL, FI_ADDR_UNSPEC, at, 0, &contexts[at]), 0);
        IS(fi_tinjectdata(ends[0].ep, ends[0].memory, 50 + at, 70 + at, ends[0].other, at), 0);
    }
    double until = now() + 60;
    while (fi_cntr_read(ends[1].received) < 2) {
        fi_cq_read(ends[0].cq, NULL, 0);
        CHECK(now() < until);
    }
    read_all(1, 2, bytes);
    for (int at = 0; at < 2; at++) {
        char *one = entries.bytes + at * bytes;
        CHECK(((struct fi_cq_entry *)one)->op_context == &contexts[at]);
        if (which >= FI_CQ_FORMAT_MSG) {
            struct fi_cq_msg_entry *msg = (struct fi_cq_msg_entry *)one;
            CHECK(msg->len == 50u + at && msg->flags == (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA));
        }
        if (which >= FI_CQ_FORMAT_DATA) CHECK(((struct fi_cq_data_entry *)one)->data == 70u + at);
        if (which == FI_CQ_FORMAT_TAGGED) CHECK(((struct fi_cq_tagged_entry *)one)->tag == (uint64_t)at);
    }
    nothing_more(1);
    for (int at = 0; at < 2; at++) close_end(&ends[at]);
    IS(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
}

/* Receives are refused when there are too many, and as long as a queue is full of what has ended; nothing is lost. */
static void full(void) {
    struct fi_cq_tagged_entry read[64];
    int context;
    size_t posted = 0, sent = 0;
    ssize_t result;
    open_ends(0, NULL, FI_TAGGED, 0);
    while (!(result = fi_trecv(ends[1].ep, ends[1].memory, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &context))) {
        posted++;
        CHECK(posted < 10000000);
    }
    IS(result, -FI_EAGAIN);
    CHECK(posted >= info->rx_attr->size);
    double until = now() + 60;
    while (sent < posted || fi_cntr_read(ends[1].received) < posted) {
        result = sent < posted ? fi_tinject(ends[0].ep, ends[0].memory, 8, ends[0].other, 1) : -FI_EAGAIN;
        if (result == -FI_EAGAIN) fi_cq_read(ends[0].cq, NULL, 0);
        else {
            IS(result, 0);
            sent++;
        }
        CHECK(now() < until);
    }
    IS(fi_trecv(ends[1].ep, ends[1].memory, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &context), -FI_EAGAIN);
    while (posted > 0) {
        result = fi_cq_read(ends[1].cq, read, 64);
        CHECK(result > 0 && (size_t)result <= posted && read[0].op_context == &context);
        posted -= result;
    }
    nothing_more(1);
    IS(fi_trecv(ends[1].ep, ends[1].memory, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &context), 0);
    IS(fi_cancel(&ends[1].ep->fid, &context), 0);
    for (int at = 0; at < 2; at++) close_end(&ends[at]);
    IS(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
}

static void waits(void) {
    static const enum fi_wait_obj there[] = {FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD};
    static const enum fi_wait_obj refused[] = {FI_WAIT_SET, FI_WAIT_MUTEX_COND, FI_WAIT_POLLFD};
    struct fid_cq *cq;
    struct fid_cntr *cntr;
    struct fid_eq *eq;
    struct fid_poll *set;
    struct fid_wait *wait;
    enum fi_wait_obj told;
    int descriptor;
    open_ends(0, NULL, FI_TAGGED, 0);
    for (size_t at = 0; at < count_of(there); at++) {
        struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = there[at]};
        struct fi_cntr_attr cntr_attr = {.wait_obj = there[at]};
        struct fi_eq_attr eq_attr = {.wait_obj = there[at]};
        int has_descriptor = there[at] == FI_WAIT_FD || there[at] == FI_WAIT_UNSPEC;
        IS(fi_cq_open(ends[0].domain, &cq_attr, &cq, NULL), 0);
        IS(fi_cntr_open(ends[0].domain, &cntr_attr, &cntr, NULL), 0);
        IS(fi_eq_open(fabric, &eq_attr, &eq, NULL), 0);
        struct fid *all[] = {&cq->fid, &cntr->fid, &eq->fid};
        for (size_t one = 0; one < count_of(all); one++) {
            IS(fi_control(all[one], FI_GETWAIT, &descriptor), has_descriptor ? 0 : -FI_ENODATA);
            IS(fi_control(all[one], FI_GETWAITOBJ, &told), 0);
            IS(told, has_descriptor ? FI_WAIT_FD : there[at]);
            IS(fi_trywait(fabric, &all[one], 1), 0);
            IS(fi_close(all[one]), 0);
        }
    }
    for (size_t at = 0; at < count_of(refused); at++) {
        struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = refused[at]};
        struct fi_cntr_attr cntr_attr = {.wait_obj = refused[at]};
        struct fi_eq_attr eq_attr = {.wait_obj = refused[at]};
        IS(fi_cq_open(ends[0].domain, &cq_attr, &cq, NULL), -FI_ENOSYS);
        IS(fi_cntr_open(ends[0].domain, &cntr_attr, &cntr, NULL), -FI_ENOSYS);
        IS(fi_eq_open(fabric, &eq_attr, &eq, NULL), -FI_ENOSYS);
    }
    struct fi_cq_attr other = {.format = 77};
    IS(fi_cq_open(ends[0].domain, &other, &cq, NULL), -FI_ENOSYS);
    struct fi_poll_attr poll_attr = {0};
    struct fi_wait_attr wait_attr = {.wait_obj = FI_WAIT_FD};
    IS(fi_poll_open(ends[0].domain, &poll_attr, &set), -FI_ENOSYS);
    IS(fi_wait_open(fabric, &wait_attr, &wait), -FI_ENOSYS);
    close_ends();
}

static atomic_long turns;
static atomic_bool is_over;

static void *take_turns(void *unused) {
    while (!is_over) {
        turns++;
        sched_yield();
    }
    return unused;
}

/* Who reads an empty queue again and again lets others on its CPU run long before its time slice is over: MPI libraries
 * whose blocking calls do nothing else would keep the CPU from the rank that they wait for. */
static void shares(void) {
    cpu_set_t all, one;
    pthread_t other;
    IS(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0 && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    IS(sched_setaffinity(0, sizeof one, &one), 0);
    open_ends(0, NULL, FI_TAGGED, 0);
    IS(pthread_create(&other, NULL, take_turns, NULL), 0);
    while (!turns) sched_yield();
    long before = turns;
    for (int at = 0; at < 20000; at++) IS(fi_cq_read(ends[0].cq, NULL, 0), -FI_EAGAIN);
    CHECK(turns - before > 100);
    is_over = 1;
    IS(pthread_join(other, NULL), 0);
    close_ends();
    IS(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void) {
    format(FI_CQ_FORMAT_CONTEXT, sizeof(struct fi_cq_entry));
    format(FI_CQ_FORMAT_MSG, sizeof(struct fi_cq_msg_entry));
    format(FI_CQ_FORMAT_DATA, sizeof(struct fi_cq_data_entry));
    format(FI_CQ_FORMAT_TAGGED, sizeof(struct fi_cq_tagged_entry));
    cq_format = FI_CQ_FORMAT_TAGGED;
    full();
    waits();
    shares();
    return 0;
}
