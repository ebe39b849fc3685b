/* Types of MPI as layouts: part of covey-mpiio.c, which has to lie beside it. */
#ifndef COVEY_MPIIO_TYPES_H
#define COVEY_MPIIO_TYPES_H

#include <dlfcn.h>
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Longer descriptions stay with the MPI library. */
enum { LAYOUT_BYTES_MAX = 1 << 20 };

/* A layout as it is written. Nodes are numbered from 0; a node uses those before it. */
struct layout {
    unsigned char *bytes;
    size_t count, room;
    int nodes, failed;
};

static void put(struct layout *out, uint64_t number, int bytes)
{
    if (out->failed)
        return;
    if (out->count + 8 > out->room) {
        size_t room = out->room ? 2 * out->room : 256;
        unsigned char *more = room <= LAYOUT_BYTES_MAX ? realloc(out->bytes, room) : NULL;
        if (!more) {
            out->failed = 1;
            return;
        }
        out->bytes = more, out->room = room;
    }
    for (int i = 0; i < bytes; i++)
        out->bytes[out->count++] = (unsigned char)(number >> (8 * i));
}

static int begun(struct layout *out, int kind)
{
    out->failed |= out->nodes >= UINT16_MAX;
    put(out, (uint64_t)kind, 1);
    return out->nodes++;
}

/* `count` copies of a node, `stride` bytes apart. */
static int repeated(struct layout *out, int inner, uint64_t count, int64_t stride)
{
    int node = begun(out, 2);
    put(out, count, 8), put(out, 1, 8), put(out, (uint64_t)stride, 8), put(out, (uint64_t)inner, 2);
    return node;
}

static int resized(struct layout *out, int inner, int64_t lower, int64_t extent)
{
    int node = begun(out, 6);
    put(out, (uint64_t)lower, 8), put(out, (uint64_t)extent, 8), put(out, (uint64_t)inner, 2);
    return node;
}

/* One node at a displacement. */
static int placed(struct layout *out, int inner, int64_t at)
{
    int node = begun(out, 4);
    put(out, 1, 8), put(out, 1, 4), put(out, (uint64_t)at, 8), put(out, (uint64_t)inner, 2);
    return node;
}

static int bytes(struct layout *out, uint64_t count)
{
    int byte = begun(out, 1);
    put(out, 0, 1);
    int node = begun(out, 2);
    put(out, 1, 8), put(out, count, 8), put(out, 0, 8), put(out, (uint64_t)byte, 2);
    return node;
}

static int describe(struct layout *out, MPI_Datatype type);

/* What a type was made from. False where it was made with large counts: the old call is an error for these, by default a
 * fatal one. */
static int envelope(MPI_Datatype type, int *integers, int *addresses, int *types, int *combiner)
{
    typedef int large_call(MPI_Datatype, MPI_Count *, MPI_Count *, MPI_Count *, MPI_Count *, int *);
    large_call *large = (large_call *)dlsym(RTLD_DEFAULT, "PMPI_Type_get_envelope_c");
    MPI_Count small[4] = {0};
    if (!large)
        return MPI_Type_get_envelope(type, integers, addresses, types, combiner) == MPI_SUCCESS;
    if (large(type, &small[0], &small[1], &small[2], &small[3], combiner) != MPI_SUCCESS)
        return 0;
    *integers = (int)small[0], *addresses = (int)small[1], *types = (int)small[3];
    return small[2] == 0;
}

/* A type with the bounds that the MPI library gives it: whatever stands in a row is an extent apart. */
static int bounded(struct layout *out, MPI_Datatype type)
{
    MPI_Aint lower, extent;
    MPI_Type_get_extent(type, &lower, &extent);
    return resized(out, describe(out, type), lower, extent);
}

static void release(MPI_Datatype type)
{
    int integers, addresses, types, combiner = MPI_COMBINER_DUP;
    envelope(type, &integers, &addresses, &types, &combiner);
    switch (combiner) {
    case MPI_COMBINER_NAMED:
    /* Predefined, too, though nameless. */
    case MPI_COMBINER_F90_INTEGER:
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
        return;
    default:
        MPI_Type_free(&type);
    }
}

static int subarray(struct layout *out, const int *n, MPI_Datatype type)
{
    int dims = n[0], order = n[1 + 3 * dims];
    const int *sizes = n + 1, *parts = n + 1 + dims, *starts = n + 1 + 2 * dims;
    MPI_Aint lower, extent;
    MPI_Type_get_extent(type, &lower, &extent);
    int node = describe(out, type);
    int64_t stride = extent, start = 0;
    /* The dimension in which neighbours lie side by side is the last in C, the first in Fortran. */
    for (int i = 0; i < dims; i++) {
        int d = order == MPI_ORDER_C ? dims - 1 - i : i;
        node = repeated(out, node, (uint64_t)parts[d], stride);
        if (__builtin_mul_overflow(stride, starts[d], &(int64_t){0}) ||
            __builtin_add_overflow(start, stride * starts[d], &start) ||
            __builtin_mul_overflow(stride, sizes[d], &stride))
            out->failed = 1;
    }
    return resized(out, placed(out, node, start), lower, stride);
}

/* The list of an indexed type: `length` copies, or one for each block, at displacements in bytes. */
struct blocks {
    int count;
    const int *lengths;
    int length;
    const int *scaled;
    const MPI_Aint *plain;
    MPI_Aint extent;
};

static int listed(struct layout *out, int inner, const struct blocks *of)
{
    int node = begun(out, 3);
    put(out, (uint64_t)of->count, 4);
    for (int i = 0; i < of->count; i++) {
        int64_t at = of->scaled ? (int64_t)of->scaled[i] * of->extent : of->plain[i];
        put(out, (uint64_t)(of->lengths ? of->lengths[i] : of->length), 8), put(out, (uint64_t)at, 8);
    }
    put(out, (uint64_t)inner, 2);
    return node;
}

static int structure(struct layout *out, const int *n, const MPI_Aint *a, const MPI_Datatype *t)
{
    int *inner = calloc(n[0] + 1, sizeof *inner);
    if (!inner) {
        out->failed = 1;
        return 0;
    }
    for (int i = 0; i < n[0] && !out->failed; i++)
        inner[i] = bounded(out, t[i]);
    int node = begun(out, 5);
    put(out, (uint64_t)n[0], 4);
    for (int i = 0; i < n[0]; i++)
        put(out, (uint64_t)n[1 + i], 8), put(out, (uint64_t)a[i], 8), put(out, (uint64_t)inner[i], 2);
    free(inner);
    return node;
}

/* A value and an int, as a struct of C. */
static int pair(struct layout *out, MPI_Datatype type, int size, MPI_Aint extent)
{
    const struct {
        MPI_Datatype type;
        size_t second;
    } known[] = {
        {MPI_SHORT_INT, offsetof(struct { short first; int second; }, second)},
        {MPI_LONG_INT, offsetof(struct { long first; int second; }, second)},
        {MPI_DOUBLE_INT, offsetof(struct { double first; int second; }, second)},
        {MPI_LONG_DOUBLE_INT, offsetof(struct { long double first; int second; }, second)},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].type == type) {
            int first = bytes(out, (uint64_t)size - sizeof(int)), second = bytes(out, sizeof(int));
            int node = begun(out, 5);
            put(out, 2, 4);
            put(out, 1, 8), put(out, 0, 8), put(out, (uint64_t)first, 2);
            put(out, 1, 8), put(out, known[i].second, 8), put(out, (uint64_t)second, 2);
            return resized(out, node, 0, extent);
        }
    out->failed = 1;
    return 0;
}

/* Writes a type as a node, behind those it uses; answers its number. */
static int describe(struct layout *out, MPI_Datatype type)
{
    int integers, addresses, types, combiner, node = 0;
    MPI_Aint lower = 0, extent = 0;
    if (out->failed)
        return 0;
    if (!envelope(type, &integers, &addresses, &types, &combiner)) {
        out->failed = 1;
        return 0;
    }
    if (combiner == MPI_COMBINER_NAMED) {
        int size;
        MPI_Type_size(type, &size);
        MPI_Type_get_extent(type, &lower, &extent);
        /* A pair may have a hole in it. */
        if (size != extent)
            return pair(out, type, size, extent);
        return bytes(out, (uint64_t)size);
    }
    int *n = calloc(integers + 1, sizeof *n);
    MPI_Aint *a = calloc(addresses + 1, sizeof *a);
    MPI_Datatype *t = calloc(types + 1, sizeof *t);
    if (!n || !a || !t || MPI_Type_get_contents(type, integers, addresses, types, n, a, t) != MPI_SUCCESS) {
        out->failed = 1;
        free(n), free(a), free(t);
        return 0;
    }
    if (types > 0)
        MPI_Type_get_extent(t[0], &lower, &extent);
    struct blocks blocks = {n[0], n + 1, 0, NULL, a, extent};
    switch (combiner) {
    case MPI_COMBINER_DUP:
        node = describe(out, t[0]);
        break;
    case MPI_COMBINER_RESIZED:
        node = resized(out, describe(out, t[0]), a[0], a[1]);
        break;
    case MPI_COMBINER_CONTIGUOUS:
        node = repeated(out, describe(out, t[0]), (uint64_t)n[0], extent);
        break;
    case MPI_COMBINER_VECTOR:
        node = repeated(out, describe(out, t[0]), (uint64_t)n[1], extent);
        node = repeated(out, node, (uint64_t)n[0], (int64_t)n[2] * extent);
        break;
    case MPI_COMBINER_HVECTOR:
        node = repeated(out, describe(out, t[0]), (uint64_t)n[1], extent);
        node = repeated(out, node, (uint64_t)n[0], a[0]);
        break;
    case MPI_COMBINER_INDEXED:
        blocks.scaled = n + 1 + n[0];
        node = listed(out, bounded(out, t[0]), &blocks);
        break;
    case MPI_COMBINER_HINDEXED:
        node = listed(out, bounded(out, t[0]), &blocks);
        break;
    case MPI_COMBINER_INDEXED_BLOCK:
        blocks.scaled = n + 2;
        /* fall through */
    case MPI_COMBINER_HINDEXED_BLOCK:
        blocks.lengths = NULL, blocks.length = n[1];
        node = listed(out, bounded(out, t[0]), &blocks);
        break;
    case MPI_COMBINER_STRUCT:
        node = structure(out, n, a, t);
        break;
    case MPI_COMBINER_SUBARRAY:
        node = subarray(out, n, t[0]);
        break;
    default:
        out->failed = 1;
    }
    for (int i = 0; i < types; i++)
        release(t[i]);
    free(n), free(a), free(t);
    return node;
}

/* The whole layout of a type; false for one that cannot be described, or whose data is not in file order. */
static int layout_of(struct layout *out, MPI_Datatype type)
{
    int (*is_view)(const void *, size_t, uint64_t, uint64_t) =
        (int (*)(const void *, size_t, uint64_t, uint64_t))dlsym(RTLD_DEFAULT, "covey_is_view");
    MPI_Aint lower, extent;
    int size;
    MPI_Type_size(type, &size);
    MPI_Type_get_extent(type, &lower, &extent);
    put(out, 1, 1), put(out, 0, 2);
    bounded(out, type);
    if (out->failed || !is_view)
        return 0;
    out->bytes[1] = (unsigned char)out->nodes, out->bytes[2] = (unsigned char)(out->nodes >> 8);
    return is_view(out->bytes, out->count, (uint64_t)size, (uint64_t)extent) == 1;
}

#endif
