/* libcovey.so: scattered data, described once and moved fast.
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
    COVEY_ERR_INTERNAL = -18
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

#ifdef __cplusplus
}
#endif
#endif
