/* Receives, messages, cancels and looks at random, of which it is known what comes of each. Two others and the endpoint
 * itself send; its queue has no counters beside it, and is read in every way, mostly an entry at a time until nothing has
 * come many times in a row. */
#include "fabric.h"
#include <stddef.h>

enum { ENDS = 3, ROOM = 300, LONG = 20000, SHORT = 100, RECEIVES = 40, POSTED = 25, EARLY = 30, TAGS = 3, FIRST_TAG = 99 };

static struct fid_fabric *fabric;
static struct fi_info *info;
static struct end {
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq, *sent;
    struct fid_ep *ep;
    fi_addr_t peers[ENDS];
} ends[ENDS];

struct message {
    int from, has_data;
    uint64_t tag, data;
    size_t bytes;
    char *memory;
};

enum state { FREE, POST, ENDED };

static struct receive {
    struct fi_context2 context;
    enum state state;
    int from, is_silent, error;
    uint64_t tag, ignore;
    size_t room;
    char *memory;
    struct message message;
} receives[RECEIVES];

static struct receive *posted[RECEIVES];
static struct message early[EARLY + 16];
static int posted_count, early_count, awaited, is_selective;
static enum fi_cq_format format;
static uint64_t seed;

static unsigned any(unsigned limit) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % limit;
}

static size_t entry_bytes(void) {
    switch (format) {
    case FI_CQ_FORMAT_CONTEXT: return sizeof(struct fi_cq_entry);
    case FI_CQ_FORMAT_MSG: return sizeof(struct fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA: return sizeof(struct fi_cq_data_entry);
    default: return sizeof(struct fi_cq_tagged_entry);
    }
}

static int takes(const struct receive *receive, const struct message *message) {
    int is_from = receive->from < 0 || receive->from == message->from;
    return is_from && !((receive->tag ^ message->tag) & ~receive->ignore);
}

static void ends_with(struct receive *receive, int error) {
    receive->state = ENDED;
    receive->error = error;
    awaited += error || !receive->is_silent;
}

static void matches(struct receive *receive, struct message message) {
    receive->message = message;
    ends_with(receive, message.bytes > receive->room ? FI_ETRUNC : 0);
}

/* What it has received is there, and nothing behind it. */
static void is_over(struct receive *receive) {
    CHECK(receive->state == ENDED);
    struct message *message = &receive->message;
    size_t bytes = message->bytes < receive->room ? message->bytes : receive->room;
    if (receive->error != FI_ECANCELED) CHECK(!memcmp(receive->memory, message->memory, bytes));
    for (size_t at = receive->room; at < receive->room + 8; at++) CHECK(receive->memory[at] == 0x11);
    free(receive->memory);
    if (receive->error != FI_ECANCELED) free(message->memory);
    receive->state = FREE;
}

static struct receive *receive_of(void *context) {
    struct receive *receive = (struct receive *)((char *)context - offsetof(struct receive, context));
    CHECK(receive >= receives && receive < receives + RECEIVES && receive->state == ENDED);
    awaited--;
    return receive;
}

static void has_ended(const struct fi_cq_tagged_entry *entry, const fi_addr_t *source) {
    struct receive *receive = receive_of(entry->op_context);
    struct message *message = &receive->message;
    CHECK(!receive->error && !receive->is_silent);
    if (format >= FI_CQ_FORMAT_MSG) {
        IS(entry->len, message->bytes);
        IS(entry->flags, FI_RECV | FI_TAGGED | (message->has_data ? FI_REMOTE_CQ_DATA : 0));
    }
    if (format >= FI_CQ_FORMAT_DATA) IS(entry->data, message->has_data ? message->data : 0);
    if (format >= FI_CQ_FORMAT_TAGGED) IS(entry->tag, message->tag);
    if (source) IS(*source, ends[0].peers[message->from]);
    is_over(receive);
}

static void has_failed(void) {
    struct fi_cq_err_entry error = {0};
    IS(fi_cq_readerr(ends[0].cq, &error, 0), 1);
    struct receive *receive = receive_of(error.op_context);
    IS(error.err, receive->error);
    if (error.err == FI_ETRUNC) IS(error.olen, receive->message.bytes - receive->room);
    is_over(receive);
}

/* Reads the queue once, in the way of that number. */
static int read_queue(unsigned way) {
    char raw[4 * sizeof(struct fi_cq_tagged_entry) + 8];
    fi_addr_t sources[4];
    size_t room = way == 2 ? 4 : 1;
    memset(raw, 0x77, sizeof raw);
    ssize_t got = way == 1   ? fi_cq_readfrom(ends[0].cq, raw, room, sources)
                  : way == 3 ? fi_cq_sread(ends[0].cq, raw, room, NULL, 0)
                             : fi_cq_read(ends[0].cq, raw, room);
    if (got == -FI_EAGAIN) return 0;
    if (got == -FI_EAVAIL) {
        has_failed();
        return 1;
    }
    CHECK(got > 0 && (size_t)got <= room);
    for (size_t at = got * entry_bytes(); at < sizeof raw; at++) CHECK(raw[at] == 0x77);
    for (ssize_t at = 0; at < got; at++) {
        struct fi_cq_tagged_entry entry = {0};
        memcpy(&entry, raw + at * entry_bytes(), entry_bytes());
        has_ended(&entry, way == 1 ? &sources[at] : NULL);
    }
    return (int)got;
}

static void others_go_on(void) {
    char entries[8 * sizeof(struct fi_cq_tagged_entry)];
    for (int at = 1; at < ENDS; at++) fi_cq_read(ends[at].cq, entries, 8);
    for (int at = 0; at < ENDS; at++) fi_cq_read(ends[at].sent, entries, 8);
}

/* Everything that is to come has. */
static void settle(void) {
    double until = now() + 60;
    unsigned ways = any(4) ? 1 : 4, quiet = 0, enough = 100 + any(70);
    while (awaited > 0 || quiet < enough) {
        quiet = read_queue(any(ways)) ? 0 : quiet + 1;
        if (!any(8)) others_go_on();
        CHECK(now() < until);
    }
    for (int at = 0; at < RECEIVES; at++)
        if (receives[at].state == ENDED) is_over(&receives[at]);
}

static void start_receive(void) {
    struct receive *receive = receives;
    while (receive < receives + RECEIVES && receive->state != FREE) receive++;
    if (receive == receives + RECEIVES || posted_count == POSTED) return;
    size_t room = !any(6) ? 0 : !any(5) ? any(LONG) : any(ROOM), part = any(4) ? room : room / 2;
    *receive = (struct receive){
        .state = POST,
        .from = any(3) ? (int)any(ENDS) : -1,
        .is_silent = is_selective && any(2),
        .tag = any(TAGS),
        .ignore = any(4) ? 0 : any(2) ? 1 : ~0ull,
        .room = room,
        .memory = malloc(room + 8),
    };
    memset(receive->memory, 0x11, room + 8);
    struct iovec places[] = {{room ? receive->memory : NULL, part}, {receive->memory + part, room - part}};
    struct fi_msg_tagged wanted = {
        .msg_iov = places,
        .iov_count = part < room ? 2 : 1,
        .addr = receive->from < 0 ? FI_ADDR_UNSPEC : ends[0].peers[receive->from],
        .tag = receive->tag,
        .ignore = receive->ignore,
        .context = &receive->context,
    };
    IS(fi_trecvmsg(ends[0].ep, &wanted, receive->is_silent ? 0 : FI_COMPLETION), 0);
    for (int at = 0; at < early_count; at++)
        if (takes(receive, &early[at])) {
            matches(receive, early[at]);
            memmove(early + at, early + at + 1, (--early_count - at) * sizeof *early);
            return;
        }
    posted[posted_count++] = receive;
}

static void forget_posted(int at) {
    memmove(posted + at, posted + at + 1, (--posted_count - at) * sizeof *posted);
}

static void send_one(int from) {
    if (early_count == EARLY) return;
    struct message message = {.from = from, .has_data = any(2), .tag = any(TAGS), .data = any(1u << 30)};
    message.bytes = from == 0 ? any(SHORT) : !any(6) ? 0 : !any(12) ? any(LONG) : any(ROOM);
    message.memory = malloc(message.bytes + 1);
    for (size_t at = 0; at < message.bytes; at++) message.memory[at] = (char)any(256);
    struct iovec piece = {message.memory, message.bytes};
    struct fi_msg_tagged sent = {
        .msg_iov = &piece, .iov_count = 1, .addr = ends[from].peers[0], .tag = message.tag, .data = message.data};
    uint64_t flags = (message.has_data ? FI_REMOTE_CQ_DATA : 0) | (any(4) ? 0 : FI_DELIVERY_COMPLETE);
    if (message.bytes <= SHORT && any(2)) flags = (flags & FI_REMOTE_CQ_DATA) | FI_INJECT;
    double until = now() + 60;
    ssize_t result;
    while ((result = fi_tsendmsg(ends[from].ep, &sent, flags)) == -FI_EAGAIN) {
        others_go_on();
        read_queue(0);
        CHECK(now() < until);
    }
    IS(result, 0);
    for (int at = 0; at < posted_count; at++)
        if (takes(posted[at], &message)) {
            matches(posted[at], message);
            forget_posted(at);
            return;
        }
    early[early_count++] = message;
}

static void cancel_one(void) {
    settle();
    if (!posted_count) return;
    int at = any(posted_count);
    IS(fi_cancel(&ends[0].ep->fid, &posted[at]->context), 0);
    ends_with(posted[at], FI_ECANCELED);
    forget_posted(at);
    settle();
}

/* Waits for what one look, or a receive of what was claimed, has come to. */
static ssize_t found(void *context, struct fi_cq_tagged_entry *entry, struct fi_cq_err_entry *error) {
    double until = now() + 60;
    ssize_t got;
    *entry = (struct fi_cq_tagged_entry){0};
    *error = (struct fi_cq_err_entry){0};
    while ((got = fi_cq_read(ends[0].cq, entry, 1)) == -FI_EAGAIN) {
        others_go_on();
        CHECK(now() < until);
    }
    if (got == -FI_EAVAIL) IS(fi_cq_readerr(ends[0].cq, error, 0), 1);
    CHECK((got == 1 ? entry->op_context : error->op_context) == context);
    return got;
}

static void look_for_one(void) {
    struct fi_context2 context;
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error;
    static const uint64_t whats[] = {0, FI_CLAIM, FI_DISCARD};
    uint64_t what = whats[any(3)];
    settle();
    struct receive sought = {.from = any(2) ? -1 : (int)any(ENDS), .tag = any(TAGS), .ignore = any(2) ? 0 : 3};
    fi_addr_t from = sought.from < 0 ? FI_ADDR_UNSPEC : ends[0].peers[sought.from];
    struct fi_msg_tagged wanted = {.addr = from, .tag = sought.tag, .ignore = sought.ignore, .context = &context};
    IS(fi_trecvmsg(ends[0].ep, &wanted, FI_PEEK | FI_COMPLETION | what), 0);
    int at = 0;
    while (at < early_count && !takes(&sought, &early[at])) at++;
    ssize_t got = found(&context, &entry, &error);
    if (at == early_count) {
        IS(error.err, FI_ENOMSG);
        return;
    }
    IS(got, 1);
    if (!what) return;
    struct message held = early[at];
    memmove(early + at, early + at + 1, (--early_count - at) * sizeof *early);
    if (what == FI_CLAIM) {
        /* Others come meanwhile. */
        for (int left = any(5), who = any(ENDS); left > 0; left--) {
            start_receive();
            send_one(who);
        }
        settle();
        char memory[ROOM];
        struct iovec place = {memory, any(ROOM)};
        wanted.msg_iov = &place;
        wanted.iov_count = 1;
        IS(fi_trecvmsg(ends[0].ep, &wanted, FI_CLAIM | FI_COMPLETION), 0);
        got = found(&context, &entry, &error);
        if (held.bytes > place.iov_len) IS(error.err, FI_ETRUNC);
        else CHECK(got == 1 && !memcmp(memory, held.memory, held.bytes));
    }
    free(held.memory);
}

static void open_end(struct end *end) {
    struct fi_cq_attr cq = {.format = format, .wait_obj = any(2) ? FI_WAIT_FD : FI_WAIT_NONE};
    struct fi_av_attr av = {.type = any(2) ? FI_AV_TABLE : FI_AV_MAP};
    IS(fi_domain(fabric, info, &end->domain, NULL), 0);
    IS(fi_av_open(end->domain, &av, &end->av, NULL), 0);
    IS(fi_cq_open(end->domain, &cq, &end->cq, NULL), 0);
    IS(fi_cq_open(end->domain, &cq, &end->sent, NULL), 0);
    IS(fi_endpoint(end->domain, info, &end->ep, NULL), 0);
    IS(fi_ep_bind(end->ep, &end->av->fid, 0), 0);
    IS(fi_ep_bind(end->ep, &end->sent->fid, FI_TRANSMIT), 0);
    IS(fi_ep_bind(end->ep, &end->cq->fid, FI_RECV | (is_selective ? FI_SELECTIVE_COMPLETION : 0)), 0);
    IS(fi_enable(end->ep), 0);
}

/* All know each other, and have met: from now on messages come in the order in which they were sent. */
static void introduce(void) {
    char names[ENDS][64], got[8];
    for (int at = 0; at < ENDS; at++) {
        size_t bytes = sizeof names[at];
        IS(fi_getname(&ends[at].ep->fid, names[at], &bytes), 0);
    }
    for (int at = 0; at < ENDS * ENDS; at++)
        IS(fi_av_insert(ends[at / ENDS].av, names[at % ENDS], 1, &ends[at / ENDS].peers[at % ENDS], 0, NULL), 1);
    for (int at = 0; at < ENDS; at++) {
        struct fi_context2 context;
        struct fi_cq_tagged_entry entry;
        struct fi_cq_err_entry error;
        struct iovec place = {got, sizeof got};
        struct fi_msg_tagged first = {
            .msg_iov = &place, .iov_count = 1, .addr = ends[0].peers[at], .tag = FIRST_TAG, .context = &context};
        IS(fi_trecvmsg(ends[0].ep, &first, FI_COMPLETION), 0);
        IS(fi_tinject(ends[at].ep, "one", 3, ends[at].peers[0], FIRST_TAG), 0);
        IS(found(&context, &entry, &error), 1);
    }
}

static void run(uint64_t number) {
    static const enum fi_cq_format formats[] = {
        FI_CQ_FORMAT_TAGGED, FI_CQ_FORMAT_TAGGED, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_CONTEXT};
    seed = number * 7919;
    format = formats[number % count_of(formats)];
    is_selective = number % 3 == 2;
    struct fi_info *wish = hints();
    wish->caps = FI_TAGGED | FI_DIRECTED_RECV;
    wish->domain_attr->data_progress = number % 7 == 6 ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
    wish->domain_attr->threading = number % 2 ? FI_THREAD_SAFE : FI_THREAD_DOMAIN;
    IS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, wish, &info), 0);
    fi_freeinfo(wish);
    IS(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
    for (int at = 0; at < ENDS; at++) open_end(&ends[at]);
    introduce();
    for (int step = 0, from = 0; step < 1000; step++) {
        unsigned what = any(12);
        if (what == 0) cancel_one();
        else if (what == 1) look_for_one();
        else if (what < 4) {
            /* Who comes first of two is not known: one at a time. */
            settle();
            from = any(ENDS);
        } else if (what < 8) start_receive();
        else if (what < 9) read_queue(any(4));
        else send_one(from);
    }
    settle();
    while (early_count) free(early[--early_count].memory);
    while (posted_count) {
        struct receive *receive = posted[--posted_count];
        free(receive->memory);
        receive->state = FREE;
    }
    for (int at = 0; at < ENDS; at++) {
        IS(fi_close(&ends[at].ep->fid), 0);
        IS(fi_close(&ends[at].cq->fid), 0);
        IS(fi_close(&ends[at].sent->fid), 0);
        IS(fi_close(&ends[at].av->fid), 0);
        IS(fi_close(&ends[at].domain->fid), 0);
    }
    IS(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
}

int main(int count, char **arguments) {
    uint64_t first = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    for (uint64_t number = first; number < first + 20; number++) {
        fprintf(stderr, "seed %llu\n", (unsigned long long)number);
        run(number);
    }
    puts("right");
    return 0;
}
