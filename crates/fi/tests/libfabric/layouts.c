/* Scattered data by the layouts of covey_fi.h: `layouts manual|auto COLUMN COLUMNS`, both encoded, in hexadecimal. COLUMN is one
 * of a matrix of SIDE x SIDE numbers, COLUMNS are all of them, one after the other. */
#include "ends.h"
#include "../../include/covey_fi.h"

enum { SIDE = 100, MATRIX = SIDE * SIDE * 4, KEY = 17 };

static struct covey_fi_ops *ops;

static size_t decoded(const char *text, unsigned char *into) {
    size_t bytes = strlen(text) / 2;
    for (size_t at = 0; at < bytes; at++) {
        unsigned byte;
        IS(sscanf(text + 2 * at, "%2x", &byte), 1);
        into[at] = byte;
    }
    return bytes;
}

static uint64_t committed(int at, const char *text) {
    unsigned char layout[1000];
    uint64_t form = 0;
    CHECK(strlen(text) < 2 * sizeof layout);
    IS(ops->commit(ends[at].ep, layout, decoded(text, layout), 1, &form), 0);
    CHECK(form);
    return form;
}

static void is_sent(void *context, uint64_t flags) {
    IS(next(0, &entry, &error), 0);
    CHECK(entry.op_context == context && (entry.flags & flags) == flags);
}

static void is_transposed(const int *one, const int *other) {
    for (int row = 0; row < SIDE; row++)
        for (int column = 0; column < SIDE; column++) IS(one[row * SIDE + column], other[column * SIDE + row]);
}

static void messages(uint64_t columns) {
    int contexts[2];
    struct covey_fi_local out = {ends[0].memory, MATRIX, 0, columns}, in = {ends[1].memory, MATRIX, 0, COVEY_FI_BYTES};
    fill(ends[0].memory, MATRIX, 3);
    memset(ends[1].memory, 0, MATRIX);
    IS(ops->trecv(ends[1].ep, &in, FI_ADDR_UNSPEC, 5, 0, &contexts[1], 0), 0);
    IS(ops->tsend(ends[0].ep, &out, ends[0].other, 5, &contexts[0], FI_COMPLETION), 0);
    is_received(1, &contexts[1], MATRIX, 5, FI_RECV | FI_TAGGED);
    is_sent(&contexts[0], FI_SEND | FI_TAGGED);
    is_transposed((int *)ends[0].memory, (int *)ends[1].memory);
    /* The other way round, from an ordinary send. */
    uint64_t there = committed(1, getenv("COLUMNS_THERE"));
    in.form = there;
    memset(ends[1].memory, 0, MATRIX);
    IS(ops->trecv(ends[1].ep, &in, ends[1].other, 6, 0, &contexts[1], 0), 0);
    struct fi_msg_tagged plain = {.msg_iov = &(struct iovec){ends[0].memory, MATRIX}, .iov_count = 1,
                                  .addr = ends[0].other, .tag = 6, .context = &contexts[0]};
    IS(fi_tsendmsg(ends[0].ep, &plain, FI_COMPLETION), 0);
    is_received(1, &contexts[1], MATRIX, 6, FI_RECV | FI_TAGGED);
    is_sent(&contexts[0], FI_SEND | FI_TAGGED);
    is_transposed((int *)ends[0].memory, (int *)ends[1].memory);
    IS(ops->uncommit(ends[1].ep, there), 0);
    IS(ops->uncommit(ends[1].ep, there), -FI_EINVAL);
    IS(ops->trecv(ends[1].ep, &in, FI_ADDR_UNSPEC, 6, 0, &contexts[1], 0), -FI_EINVAL);
}

static void one_sided(uint64_t column) {
    int context;
    struct fid_mr *mr = NULL;
    IS(fi_mr_reg(ends[1].domain, ends[1].memory, MATRIX, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL), 0);
    struct covey_fi_local row = {ends[0].memory, SIDE * 4, 0, COVEY_FI_BYTES};
    struct covey_fi_remote there = {ends[0].other, KEY, 7 * 4, column};
    fill(ends[0].memory, SIDE * 4, 9);
    memset(ends[1].memory, 0, MATRIX);
    IS(ops->write(ends[0].ep, &row, &there, &context, FI_COMPLETION), 0);
    is_sent(&context, FI_RMA | FI_WRITE);
    int *here = (int *)ends[0].memory, *matrix = (int *)ends[1].memory;
    for (int at = 0; at < SIDE * SIDE; at++) IS(matrix[at], at % SIDE == 7 ? here[at / SIDE] : 0);
    memset(here, 0, SIDE * 4);
    IS(ops->read(ends[0].ep, &row, &there, &context, FI_COMPLETION), 0);
    is_sent(&context, FI_RMA | FI_READ);
    for (int at = 0; at < SIDE; at++) IS(here[at], matrix[at * SIDE + 7]);
    /* Beyond the registration, with another length, and behind the end of the memory here. */
    there.at = MATRIX - 4;
    IS(ops->write(ends[0].ep, &row, &there, &context, 0), 0);
    CHECK(next(0, &entry, &error) < 0 && error.op_context == &context);
    there.at = 0;
    row.bytes = 4;
    ssize_t refused = ops->write(ends[0].ep, &row, &there, &context, 0);
    CHECK(refused < 0 || next(0, &entry, &error) < 0);
    row.bytes = SIDE * 4;
    row.form = column;
    refused = ops->read(ends[0].ep, &row, &there, &context, 0);
    CHECK(refused < 0 || next(0, &entry, &error) < 0);
    IS(ops->write(ends[0].ep, &row, &there, &context, FI_INJECT), -FI_EBADFLAGS);
    nothing_more(0);
    IS(fi_close(&mr->fid), 0);
}

int main(int count, char **arguments) {
    open_ends(count, arguments, FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV, 0);
    IS(count, 4);
    setenv("COLUMNS_THERE", arguments[3], 1);
    IS(fi_open_ops(&ends[0].ep->fid, "other ops", 0, (void **)&ops, NULL), -FI_ENOSYS);
    IS(fi_open_ops(&ends[0].ep->fid, COVEY_FI_OPS, 1, (void **)&ops, NULL), -FI_EINVAL);
    IS(fi_open_ops(&ends[0].ep->fid, COVEY_FI_OPS, 0, (void **)&ops, NULL), 0);
    CHECK(ops->size >= sizeof *ops);
    uint64_t form = 5;
    IS(ops->commit(ends[0].ep, "no layout", 9, 1, &form), -FI_EINVAL);
    IS(ops->commit(ends[0].ep, NULL, 9, 1, &form), -FI_EINVAL);
    IS(ops->uncommit(ends[0].ep, 0), -FI_EINVAL);
    IS(ops->uncommit(ends[0].ep, ~0ULL), -FI_EINVAL);
    messages(committed(0, arguments[3]));
    one_sided(committed(0, arguments[2]));
    close_ends();
    return 0;
}
