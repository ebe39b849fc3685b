/* libcovey.so: scattered data, described once and moved fast; and messages and one-sided operations on it.
 *
 * A layout says which bytes of memory are meant, in which order, in the words of MPI's derived types.
 * Made ready to be read it is a plan, made ready to be written a target. Packed bytes are the data in
 * the order that the layout names it.
 *
 *     covey_layout *element, *column, *columns;                 // a matrix of 100 x 100 floats, by columns
 *     covey_layout_element(COVEY_F32, &element);
 *     covey_layout_vector(100, 1, 100, element, &column);
 *     covey_layout_hvector(100, 1, sizeof(float), column, &columns);
 *     covey_plan *plan;
 *     covey_plan_new(columns, 1, &plan);
 *     covey_pack(plan, covey_memory(matrix, sizeof matrix), 0, packed, sizeof packed);
 *
 * Every function that answers an int answers COVEY_OK, or a negative number and has then done nothing:
 * covey_strerror has its words, covey_last_error those of this thread's last refusal, with its figures.
 * Handles are opaque, never change, and may be used by several threads at once. Whoever gets one through
 * the last argument frees it, in any order: what was made of another does not need it any more. Freeing NULL does nothing.
 * Link with -lcovey. */
#ifndef COVEY_H
#define COVEY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- results ---- */

enum covey_result {
    COVEY_OK = 0,
    /* A pointer is null, or a number means nothing. */
    COVEY_ERR_ARGUMENT = -1,
    /* The layout touches bytes that the memory does not have. */
    COVEY_ERR_BOUNDS = -2,
    /* A layout to be written to names a byte twice. */
    COVEY_ERR_OVERLAP = -3,
    /* Pieces interleave so that it would take too long to know whether they overlap. */
    COVEY_ERR_ENTANGLED = -4,
    /* An offset or a size leaves the range of offsets, 2^60 bytes. */
    COVEY_ERR_OVERFLOW = -5,
    /* More than 32 levels. */
    COVEY_ERR_DEPTH = -6,
    /* More than 2^18 listed pieces and levels. */
    COVEY_ERR_ENTRIES = -7,
    /* More than 1 MiB encoded. */
    COVEY_ERR_LONG = -8,
    /* A subarray does not lie in its array. */
    COVEY_ERR_SUBARRAY = -9,
    /* A range reaches beyond the end of the packed bytes. */
    COVEY_ERR_PACKED = -10,
    /* Source and target do not pack to the same size. */
    COVEY_ERR_SIZES = -11,
    /* A range of the packed bytes cuts an element. */
    COVEY_ERR_SPLIT = -12,
    /* The operation is not defined for an element of the layout. */
    COVEY_ERR_OPERATION = -13,
    /* The bytes are no description. */
    COVEY_ERR_MALFORMED = -14,
    /* A description of a version that is not known here. */
    COVEY_ERR_VERSION = -15,
    /* The result does not fit the room for it. */
    COVEY_ERR_ROOM = -16,
    /* This cannot be described as a layout. */
    COVEY_ERR_UNSUPPORTED = -17,
    /* A fault of libcovey itself. */
    COVEY_ERR_INTERNAL = -18,
    /* The system refused it. */
    COVEY_ERR_IO = -19,

    /* How operations of endpoints end. */
    /* The peer died, or broke the protocol. Whether the operation took place there is not known. */
    COVEY_ERR_PEER_DEAD = -33,
    COVEY_ERR_NO_PEER = -34,
    /* The registration was there and has been revoked. */
    COVEY_ERR_REVOKED = -35,
    COVEY_ERR_WRONG_KEY = -36,
    /* The registration does not permit this access. */
    COVEY_ERR_DENIED = -37,
    /* The access leaves the registered memory, or the buffer that was named. */
    COVEY_ERR_OUT_OF_RANGE = -38,
    /* The message is longer than what was to receive it: that was filled, and the rest is lost. */
    COVEY_ERR_TRUNCATED = -39,
    COVEY_ERR_CANCELLED = -40,
    /* Too many operations are under way: poll, and try again. */
    COVEY_ERR_BUSY = -41,
    /* A layout names bytes twice that are to be written, or cannot be sent. */
    COVEY_ERR_LAYOUT = -42,
    COVEY_ERR_NO_SUCH = -43,
    /* The two sides of a one-sided operation have different sizes. */
    COVEY_ERR_UNEQUAL = -44,
    /* The operation is not defined for these elements. */
    COVEY_ERR_UNDEFINED = -45,
    /* The memory cannot be read or written. */
    COVEY_ERR_NO_MEMORY = -46,
    COVEY_ERR_TOO_LONG = -47,
    /* The two sides of an operation overlap in memory. */
    COVEY_ERR_OVERLAPPING = -48,
    /* Between peers of different byte orders: the layouts of the two sides name elements of different sizes. */
    COVEY_ERR_ELEMENTS = -49,
    /* Another registration has this key. */
    COVEY_ERR_KEY_TAKEN = -50,
    /* A peer has begun to access the memory and does not go on: it is stopped. Try again. */
    COVEY_ERR_IN_USE = -51
};

/* The words of a result. Never NULL, never freed. */
const char *covey_strerror(int result);

/* The words of this thread's last refusal, with its figures; valid until its next one. */
const char *covey_last_error(void);

/* ---- layouts ---- */

typedef struct covey_layout covey_layout;

enum covey_element {
    /* Means nothing: never swapped, never added to. */
    COVEY_BYTE = 0,
    COVEY_I8 = 1,
    COVEY_U8 = 2,
    COVEY_I16 = 3,
    COVEY_U16 = 4,
    COVEY_I32 = 5,
    COVEY_U32 = 6,
    COVEY_I64 = 7,
    COVEY_U64 = 8,
    COVEY_F32 = 9,
    COVEY_F64 = 10
};

/* Which axis of an array varies fastest: the last one, or the first one. */
enum covey_order { COVEY_ORDER_C = 0, COVEY_ORDER_FORTRAN = 1 };

/* Copies in a row; where the first one lies: in extents for indexed, in bytes for hindexed. */
struct covey_block {
    uint64_t count;
    int64_t displacement;
};

/* Copies in a row of one layout; where the first one lies, in bytes. */
struct covey_member {
    uint64_t count;
    int64_t displacement;
    const covey_layout *layout;
};

/* An axis of an array: its elements, the first one of the part that is meant, and how many. */
struct covey_axis {
    uint64_t size;
    uint64_t start;
    uint64_t part;
};

/* In bytes from the origin: bounds as set by resized or else as of the data, rounded up to its alignment;
 * the data's own; bytes of data. The extent, upper - lower, is the distance from one copy to the next. */
struct covey_bounds {
    int64_t lower;
    int64_t upper;
    int64_t true_lower;
    int64_t true_upper;
    uint64_t size;
};

/* One element. */
int covey_layout_element(int element, covey_layout **out);

/* Copies, each an extent after the one before. */
int covey_layout_contiguous(uint64_t count, const covey_layout *inner, covey_layout **out);

/* Blocks of `block` copies, each `stride` extents after the one before. */
int covey_layout_vector(uint64_t count, uint64_t block, int64_t stride, const covey_layout *inner, covey_layout **out);

/* The same with the stride in bytes. */
int covey_layout_hvector(uint64_t count, uint64_t block, int64_t stride, const covey_layout *inner, covey_layout **out);

/* Blocks anywhere, displacements in extents. */
int covey_layout_indexed(const struct covey_block *blocks, size_t count, const covey_layout *inner, covey_layout **out);

/* Blocks anywhere, displacements in bytes. */
int covey_layout_hindexed(const struct covey_block *blocks, size_t count, const covey_layout *inner, covey_layout **out);

/* Members of different layouts. */
int covey_layout_struct(const struct covey_member *members, size_t count, covey_layout **out);

/* A part of an array, with the extent of the whole. */
int covey_layout_subarray(const struct covey_axis *axes, size_t count, int order, const covey_layout *inner, covey_layout **out);

/* The same data with another lower bound and extent. */
int covey_layout_resized(int64_t lower, int64_t extent, const covey_layout *inner, covey_layout **out);

/* Another handle of the same layout. */
int covey_layout_dup(const covey_layout *layout, covey_layout **out);

void covey_layout_free(covey_layout *layout);

int covey_layout_bounds(const covey_layout *layout, struct covey_bounds *out);

/* The description as bytes, a few dozen for most, that any machine can decode: docs/protocol/layout.md.
 * `needed` is told in any case; with too little room the result is COVEY_ERR_ROOM. */
int covey_layout_encode(const covey_layout *layout, void *into, size_t bytes, size_t *needed);

/* The layout of an encoded description. The bytes may come from anyone. */
int covey_layout_decode(const void *encoded, size_t bytes, covey_layout **out);

/* ---- moving bytes ---- */

/* Memory that layouts are applied to: displacement 0 lies at the origin, and the bytes from begin to end,
 * counted from there, can be used. */
struct covey_memory {
    void *origin;
    int64_t begin;
    int64_t end;
};

/* A buffer whose origin is its first byte. A plan only reads it. */
static inline struct covey_memory covey_memory(const void *base, size_t bytes)
{
    struct covey_memory memory;
    memory.origin = (void *)base;
    memory.begin = 0;
    memory.end = (int64_t)bytes;
    return memory;
}

/* What a layout turned out to be: nothing, one run, blocks at equal distances, a vector of vectors, a
 * matrix by columns, more loops around one block, blocks without a pattern. */
enum covey_shape {
    COVEY_SHAPE_EMPTY = 0,
    COVEY_SHAPE_CONTIGUOUS = 1,
    COVEY_SHAPE_STRIDED = 2,
    COVEY_SHAPE_STRIDED2 = 3,
    COVEY_SHAPE_TRANSPOSED = 4,
    COVEY_SHAPE_NESTED = 5,
    COVEY_SHAPE_LISTED = 6
};

/* Packed bytes; the first byte touched and the one behind the last, from the origin; blocks of contiguous
 * bytes; an enum covey_shape. */
struct covey_form {
    uint64_t size;
    int64_t begin;
    int64_t end;
    uint64_t runs;
    int shape;
};

/* Contiguous bytes: from the origin, how many, and where they are packed. */
struct covey_run {
    int64_t offset;
    uint64_t bytes;
    uint64_t packed;
};

/* Ready to be read. Takes time linear in the description: keep it. */
typedef struct covey_plan covey_plan;

/* Some copies of a layout, each an extent after the one before. */
int covey_plan_new(const covey_layout *layout, uint64_t count, covey_plan **out);

void covey_plan_free(covey_plan *plan);

int covey_plan_form(const covey_plan *plan, struct covey_form *out);

/* The runs from a packed offset on, as many as there is room for; `found` tells how many were. */
int covey_plan_runs(const covey_plan *plan, uint64_t at, struct covey_run *into, size_t count, size_t *found);

/* Copies the packed bytes from `at` on into all of `into`, which must not overlap the memory. */
int covey_pack(const covey_plan *plan, struct covey_memory from, uint64_t at, void *into, size_t bytes);

/* Ready to be written. A layout that names a byte twice is refused. */
typedef struct covey_target covey_target;

int covey_target_new(const covey_layout *layout, uint64_t count, covey_target **out);

void covey_target_free(covey_target *target);

int covey_target_form(const covey_target *target, struct covey_form *out);

/* Puts bytes, which are the packed ones from `at` on, in their places. They must not overlap the memory. */
int covey_unpack(const covey_target *target, const void *packed, size_t bytes, uint64_t at, struct covey_memory into);

/* Copies what the plan means in `from` to what the target means in `into`, without packing in between. The
 * memories must not overlap. */
int covey_copy(const covey_target *target, struct covey_memory into, const covey_plan *plan, struct covey_memory from);

/* MPI's predefined operations. */
enum covey_op {
    COVEY_SUM = 0,
    COVEY_PROD = 1,
    COVEY_MIN = 2,
    COVEY_MAX = 3,
    COVEY_LAND = 4,
    COVEY_LOR = 5,
    COVEY_LXOR = 6,
    COVEY_BAND = 7,
    COVEY_BOR = 8,
    COVEY_BXOR = 9,
    COVEY_REPLACE = 10,
    COVEY_NO_OP = 11
};

/* Combines packed bytes, whole elements from `at` on, with what is there. Not atomic. */
int covey_accumulate(const covey_target *target, int operation, const void *packed, size_t bytes, uint64_t at, struct covey_memory into);

/* Turns packed bytes, whole elements from `at` on, to the other byte order, in place. */
int covey_swap(const covey_layout *layout, uint64_t count, void *packed, size_t bytes, uint64_t at);

/* ---- endpoints: messages and one-sided operations between processes ---- */

/* A process's end. One thread uses it at a time. Calls begin operations; covey_endpoint_poll and
 * covey_endpoint_wait make them go on and tell their ends: every operation that was begun, with COVEY_OK, has
 * one completion. Memory that an operation is about is in use until then. Lengths are in bytes.
 *
 * What is wrong is told as early as it is known. A call that answers anything else than COVEY_OK has begun nothing
 * and has no completion; what only the peer finds out is the result of the completion. Which of the two it is
 * depends on the transport: over shared memory a put sees itself that it is not permitted, over TCP the peer says so.
 * So look at both. */
typedef struct covey_endpoint covey_endpoint;

/* Sizes, in bytes but for the last one; 0 means the default. More than the most is COVEY_ERR_ARGUMENT. */
struct covey_config {
    /* The longest message that is sent at once; longer ones wait until they are received. 4 KiB; a packet, 32 KiB
     * over shared memory and 64 KiB over TCP, is the most that makes a difference. */
    uint64_t eager_bytes_max;
    /* Memory for messages that nobody has received yet, for each peer, who waits when it is full. 1 MiB; at most 1 TiB. */
    uint64_t window_bytes;
    /* Memory of the near translation table. 4 MiB; at most 1 GiB. */
    uint64_t near_table_bytes;
    /* Memory for covey_endpoint_alloc; what is not used takes none. 1 GiB; at most 1 TiB. */
    uint64_t heap_bytes;
    /* How many peers. 64; at most 65536. */
    uint64_t peers_max;
};

/* Any peer, where one is asked for; none, where one is told. */
#define COVEY_NO_PEER UINT32_MAX
/* No layout: all bytes, in a row. */
#define COVEY_NO_FORM 0

/* An endpoint. It shares memory with peers that it met at a path, and reaches those that it met at an address by TCP; all
 * calls are the same. Without a config, all sizes are the default. */
int covey_endpoint_new(const struct covey_config *config, covey_endpoint **out);

void covey_endpoint_free(covey_endpoint *endpoint);

/* Lets processes of this user come, by a Unix socket at this path, which goes with the endpoint; what an ended process
 * has left there is removed. At an address of loopback such as "127.0.0.1:4000", where port 0 means any, they come by TCP. An
 * endpoint may listen at both. Between machines see covey_endpoint_adopt. */
int covey_endpoint_listen(covey_endpoint *endpoint, const char *name);

/* Where it listens by TCP, as a string. `needed` is told in any case; with too little room the result
 * is COVEY_ERR_ROOM. */
int covey_endpoint_address(covey_endpoint *endpoint, char *into, size_t bytes, size_t *needed);

/* Meets a process that has come; COVEY_NO_PEER when none has. Does not wait. */
int covey_endpoint_accept(covey_endpoint *endpoint, uint32_t *peer);

/* Meets the process that listens there; at a path it waits for its accept, 5 s at most. COVEY_ERR_IO: nobody
 * listens there, or not for us. */
int covey_endpoint_connect(covey_endpoint *endpoint, const char *name, uint32_t *peer);

/* Meets whoever has the other end of a connected socket, which does the same: over a Unix socket by shared memory. Who
 * that is has been proven before; what it sends is believed no more than that of others. The socket is the
 * endpoint's from now on, and closed when that is refused. */
int covey_endpoint_adopt(covey_endpoint *endpoint, int socket, uint32_t *peer);

/* Memory that peers of this machine map: what lies in it moves in one pass. Any other memory may be used as well. */
int covey_endpoint_alloc(covey_endpoint *endpoint, uint64_t bytes, void **out);

int covey_endpoint_release(covey_endpoint *endpoint, void *memory);

/* Makes copies of a layout ready for operations, on either side; the layout is not needed any more. */
int covey_endpoint_commit(covey_endpoint *endpoint, const covey_layout *layout, uint64_t count, uint64_t *form);

/* Forgets it. No operation under way may use it. */
int covey_endpoint_uncommit(covey_endpoint *endpoint, uint64_t form);

enum covey_rights { COVEY_READ = 1, COVEY_WRITE = 2, COVEY_ATOMIC = 4 };

/* Lets peers that have the key access memory, as far as the rights (added together) go. The key is what they need, in
 * a message for instance: there is no other check of who uses it. The memory must stay until it is revoked. */
int covey_endpoint_register(covey_endpoint *endpoint, void *base, uint64_t bytes, uint32_t rights, uint64_t *key);

/* Takes it back: when this returns nobody accesses the memory by this key any more. COVEY_ERR_IN_USE: a peer was stopped in the
 * middle of an access, for 2 s so far; no other begins. Call it again, and keep the memory as it is until then. */
int covey_endpoint_revoke(covey_endpoint *endpoint, uint64_t key);

/* Memory of ours: all that may be touched; where in it displacement 0 of the layout lies; the layout. */
struct covey_local {
    void *base;
    uint64_t bytes;
    uint64_t origin;
    uint64_t form;
};

/* Memory of a peer: its registration; where displacement 0 lies, from the registration's beginning; the layout,
 * which is sent there and run there. */
struct covey_remote {
    uint64_t key;
    uint64_t at;
    uint64_t form;
    uint32_t peer;
};

/* Which messages: the tag, the bits of it that do not matter, and the sender or COVEY_NO_PEER. */
struct covey_match {
    uint64_t tag;
    uint64_t ignore;
    uint32_t peer;
};

/* The end of an operation: what the caller gave with it; the tag and bytes of the message, however many there was
 * room for, or of a one-sided operation, bytes that were asked for; whose message or memory; an enum covey_result.
 * With another result than COVEY_OK what was to be written may have been written in part. */
struct covey_completion {
    uint64_t context;
    uint64_t tag;
    uint64_t bytes;
    uint32_t peer;
    int result;
};

/* A message that nobody has received yet. */
struct covey_probe {
    uint64_t tag;
    uint64_t bytes;
    uint32_t peer;
};

/* Messages that begin with a header of a form: bits that matter, what they are, where the header goes, and where what
 * follows it goes. */
struct covey_rule {
    struct covey_match matches;
    const void *mask;
    const void *value;
    size_t header_bytes;
    void *header;
    struct covey_local payload;
};

/* All bytes of a buffer. */
static inline struct covey_local covey_local(const void *base, uint64_t bytes)
{
    struct covey_local local;
    local.base = (void *)base;
    local.bytes = bytes;
    local.origin = 0;
    local.form = COVEY_NO_FORM;
    return local;
}

/* The number of an operation, for covey_endpoint_cancel, is told where `operation` is not NULL. */

/* Sends a message of any length, 0 as well; all 64 bits of the tag are free. It is done when its memory may be used
 * again: a short one at once, before it is received; a long one when it has been. */
int covey_endpoint_send(covey_endpoint *endpoint, uint32_t peer, uint64_t tag, struct covey_local what, uint64_t context, uint64_t *operation);

/* One of several messages. */
struct covey_message {
    struct covey_local what;
    uint64_t tag;
    uint64_t context;
    uint32_t peer;
};

/* Sends messages in their order, as covey_endpoint_send does each, and lets them leave together where that is cheaper:
 * over TCP many short ones leave in one call of the system. All have left when this returns, as far as there is room for
 * them. Ends with the first that is refused, whose reason it returns; `begun` is how many went before it: these have a
 * completion each, the others have none. */
int covey_endpoint_send_all(covey_endpoint *endpoint, const struct covey_message *messages, size_t count, size_t *begun);

/* A message that begins with a header of at most 256 bytes: nothing is gathered before. */
int covey_endpoint_send_headed(covey_endpoint *endpoint, uint32_t peer, uint64_t tag, const void *header, size_t header_bytes, struct covey_local what, uint64_t context, uint64_t *operation);

/* Receives the first message that fits, in the order in which they were sent. A longer one than there is room for:
 * COVEY_ERR_TRUNCATED. One from COVEY_NO_PEER goes on waiting when a peer dies. */
int covey_endpoint_receive(covey_endpoint *endpoint, struct covey_match matches, struct covey_local into, uint64_t context, uint64_t *operation);

/* Receives one message whose header has a form, which is of at most 256 bytes: header and payload each go to their
 * place. Messages with other headers wait for other receives. */
int covey_endpoint_place(covey_endpoint *endpoint, const struct covey_rule *rule, uint64_t context, uint64_t *operation);

/* The message that a receive would get now; its peer is COVEY_NO_PEER when there is none. */
int covey_endpoint_probe(covey_endpoint *endpoint, struct covey_match matches, struct covey_probe *out);

/* Cancels what has not begun: its completion says COVEY_ERR_CANCELLED. COVEY_ERR_NO_SUCH: it goes on, or has ended. */
int covey_endpoint_cancel(covey_endpoint *endpoint, uint64_t operation);

/* Writes to memory of a peer, as many bytes as both layouts have (else COVEY_ERR_UNEQUAL). It is done when it is there. */
int covey_endpoint_put(covey_endpoint *endpoint, struct covey_local from, struct covey_remote to, uint64_t context, uint64_t *operation);

/* Reads memory of a peer, as many bytes as both layouts have. */
int covey_endpoint_get(covey_endpoint *endpoint, struct covey_local into, struct covey_remote from, uint64_t context, uint64_t *operation);

/* Combines memory of a peer with memory of ours; `what` is an enum covey_op, the elements are the remote layout's. The
 * peer does it when it polls or waits, an operation at a time: it is atomic among these three, not with its own writing. */
int covey_endpoint_accumulate(covey_endpoint *endpoint, int what, struct covey_local from, struct covey_remote to, uint64_t context, uint64_t *operation);

/* The same, and what was there before comes into `before`. */
int covey_endpoint_fetch(covey_endpoint *endpoint, int what, struct covey_local from, struct covey_local before, struct covey_remote to, uint64_t context, uint64_t *operation);

/* Where memory of a peer equals `expected`, all of it, replaces it; what was there before comes into `before`. At most
 * half a packet, 16 KiB over shared memory and 32 KiB over TCP: else COVEY_ERR_TOO_LONG. */
int covey_endpoint_compare_swap(covey_endpoint *endpoint, struct covey_local expected, struct covey_local replacement, struct covey_local before, struct covey_remote to, uint64_t context, uint64_t *operation);

/* Makes operations go on, and tells ends, as many as there is room for. Does not wait. */
int covey_endpoint_poll(covey_endpoint *endpoint, struct covey_completion *into, size_t count, size_t *found);

/* The same, and waits until one has ended, so many milliseconds at most; -1: as long as it takes. `found` is 0
 * when none has. What peers ask for is served meanwhile: with -1 and nothing of ours under way for ever. */
int covey_endpoint_wait(covey_endpoint *endpoint, struct covey_completion *into, size_t count, size_t *found, int64_t ms);

/* What was counted since the endpoint was made. */
struct covey_stats {
    /* Keys that the near translation table knew, and those that took the other one. */
    uint64_t near_hits;
    uint64_t near_misses;
    /* Messages sent at once, and those that waited until they were received. */
    uint64_t eager;
    uint64_t rendezvous;
    /* Messages that came before somebody received them; bytes of those that are held now. */
    uint64_t unexpected;
    uint64_t unexpected_bytes;
    /* Payload bytes copied by this side; of these, bytes copied to be copied again. */
    uint64_t bytes_copied;
    uint64_t bytes_held;
    /* Transfers that reached into a peer's memory without its help. */
    uint64_t direct;
};

int covey_endpoint_stats(const covey_endpoint *endpoint, struct covey_stats *out);

#ifdef __cplusplus
}
#endif
#endif
