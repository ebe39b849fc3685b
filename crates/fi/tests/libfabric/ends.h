/* Two endpoints of one process, which know each other. */
#include "fabric.h"

enum { BYTES = 1 << 20 };

static struct fid_fabric *fabric;
static struct fi_info *info;

struct end {
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_cntr *sent, *received;
    struct fid_ep *ep;
    fi_addr_t self, other;
    char *memory;
};

static struct end ends[2];
static int is_auto;
static enum fi_cq_format cq_format = FI_CQ_FORMAT_TAGGED;

static inline void open_end(struct end *end) {
    struct fi_cq_attr cq = {.format = cq_format, .wait_obj = FI_WAIT_FD};
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_cntr_attr cntr = {.wait_obj = FI_WAIT_UNSPEC};
    IS(fi_domain(fabric, info, &end->domain, NULL), 0);
    IS(fi_av_open(end->domain, &av, &end->av, NULL), 0);
    IS(fi_cq_open(end->domain, &cq, &end->cq, NULL), 0);
    IS(fi_cntr_open(end->domain, &cntr, &end->sent, NULL), 0);
    IS(fi_cntr_open(end->domain, &cntr, &end->received, NULL), 0);
    IS(fi_endpoint(end->domain, info, &end->ep, NULL), 0);
    IS(fi_enable(end->ep), -FI_ENOAV);
    IS(fi_ep_bind(end->ep, &end->av->fid, 0), 0);
    IS(fi_enable(end->ep), -FI_ENOCQ);
    IS(fi_ep_bind(end->ep, &end->cq->fid, FI_RECV), 0);
    IS(fi_ep_bind(end->ep, &end->cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION), 0);
    IS(fi_ep_bind(end->ep, &end->sent->fid, FI_SEND | FI_WRITE), 0);
    IS(fi_ep_bind(end->ep, &end->received->fid, FI_RECV), 0);
    char byte = 0;
    IS(fi_inject(end->ep, &byte, 1, 0), -FI_EOPBADSTATE);
    IS(fi_enable(end->ep), 0);
    end->memory = calloc(2, BYTES);
}

static inline void introduce(void) {
    char names[2][64];
    for (int at = 0; at < 2; at++) {
        size_t bytes = 3;
        IS(fi_getname(&ends[at].ep->fid, names[at], &bytes), -FI_ETOOSMALL);
        CHECK(bytes > 3 && bytes <= sizeof names[at]);
        IS(fi_getname(&ends[at].ep->fid, names[at], &bytes), 0);
    }
    for (int at = 0; at < 2; at++) {
        IS(fi_av_insert(ends[at].av, names[at], 1, &ends[at].self, 0, NULL), 1);
        IS(fi_av_insert(ends[at].av, names[1 - at], 1, &ends[at].other, 0, NULL), 1);
        char back[64], text[100];
        size_t bytes = sizeof back, room = sizeof text;
        IS(fi_av_lookup(ends[at].av, ends[at].other, back, &bytes), 0);
        CHECK(!memcmp(back, names[1 - at], bytes));
        CHECK(strstr(fi_av_straddr(ends[at].av, back, text, &room), "covey"));
        bytes = sizeof back;
        IS(fi_av_lookup(ends[at].av, 77, back, &bytes), -FI_EINVAL);
        memset(back, 0x55, sizeof back);
        int errors[1] = {0};
        fi_addr_t none = 0;
        IS(fi_av_insert(ends[at].av, back, 1, &none, FI_SYNC_ERR, errors), 0);
        CHECK(none == FI_ADDR_NOTAVAIL && errors[0] == FI_EINVAL);
    }
}

/* The next completion of an end; the other goes on meanwhile. An error is given as a negative number. */
static inline int next(int at, struct fi_cq_tagged_entry *entry, struct fi_cq_err_entry *error) {
    double until = now() + 60;
    struct fi_cq_tagged_entry other;
    for (;;) {
        ssize_t got = fi_cq_read(ends[at].cq, entry, 1);
        if (got == 1) return 0;
        if (got == -FI_EAVAIL) {
            memset(error, 0, sizeof *error);
            IS(fi_cq_readerr(ends[at].cq, error, 0), 1);
            return -error->err;
        }
        IS(got, -FI_EAGAIN);
        if (!is_auto) fi_cq_read(ends[1 - at].cq, &other, 0);
        CHECK(now() < until);
    }
}

static inline void nothing_more(int at) {
    struct fi_cq_tagged_entry entry;
    for (int round = 0; round < 1000; round++) IS(fi_cq_read(ends[at].cq, &entry, 1), -FI_EAGAIN);
}

static inline void fill(char *memory, size_t bytes, int seed) {
    for (size_t at = 0; at < bytes; at++) memory[at] = (char)(at * 31 % 251 + seed);
}

static struct fi_cq_tagged_entry entry;
static struct fi_cq_err_entry error;

/* A receive's end. */
static inline void is_received(int at, void *context, size_t bytes, uint64_t tag, uint64_t flags) {
    IS(next(at, &entry, &error), 0);
    CHECK(entry.op_context == context);
    IS(entry.len, bytes);
    IS(entry.tag, tag);
    IS(entry.flags & (FI_RECV | FI_TAGGED | FI_MSG), flags);
}

/* What was opened is busy while something in it is open. */
static inline void close_end(struct end *end) {
    if (end->ep) {
        IS(fi_close(&end->av->fid), -FI_EBUSY);
        IS(fi_close(&end->cq->fid), -FI_EBUSY);
        IS(fi_close(&end->domain->fid), -FI_EBUSY);
        IS(fi_close(&end->ep->fid), 0);
    }
    IS(fi_close(&end->sent->fid), 0);
    IS(fi_close(&end->received->fid), 0);
    IS(fi_close(&end->cq->fid), 0);
    IS(fi_close(&end->av->fid), 0);
    IS(fi_close(&fabric->fid), -FI_EBUSY);
    IS(fi_close(&end->domain->fid), 0);
    free(end->memory);
}

/* Opens both. */
static inline void open_ends(int count, char **arguments, uint64_t caps, int mr_mode) {
    is_auto = count > 1 && !strcmp(arguments[1], "auto");
    struct fi_info *wish = hints();
    wish->caps = caps;
    wish->domain_attr->mr_mode = mr_mode;
    wish->domain_attr->data_progress = is_auto ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
    IS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, wish, &info), 0);
    fi_freeinfo(wish);
    IS(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
    open_end(&ends[0]);
    open_end(&ends[1]);
    introduce();
}

static inline void close_ends(void) {
    close_end(&ends[0]);
    close_end(&ends[1]);
    IS(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
    puts("right");
}
