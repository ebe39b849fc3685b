/* The layout of an MPI datatype, for any MPI library: what MPI_Type_get_envelope and
 * MPI_Type_get_contents tell, in the words of covey.h.
 *
 *     #include <mpi.h>
 *     #include <covey-mpi.h>
 *     covey_layout *layout;
 *     int result = covey_layout_of_mpi(type, &layout);     // COVEY_ERR_UNSUPPORTED: not this type
 *
 * Everything is in this file, because every MPI library has its own mpi.h. All constructors of MPI are
 * known, darray included; types of large counts, and what a later MPI adds, are refused. At every level
 * the extent is compared with MPI's, and where the two differ MPI's counts. */
#ifndef COVEY_MPI_H
#define COVEY_MPI_H

#include <covey.h>
#include <mpi.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
#error "covey-mpi.h is C: compile it as such, and link with it"
#endif

static int covey_layout_of_mpi(MPI_Datatype type, covey_layout **out);

/* ---- named types ---- */

/* The element of a named type that is one; -1 for others. */
static int covey_mpi_element(MPI_Datatype type)
{
    const struct {
        MPI_Datatype type;
        int element;
    } known[] = {
        {MPI_SIGNED_CHAR, COVEY_I8}, {MPI_INT8_T, COVEY_I8}, {MPI_UNSIGNED_CHAR, COVEY_U8},
        {MPI_UINT8_T, COVEY_U8}, {MPI_SHORT, COVEY_I16}, {MPI_INT16_T, COVEY_I16},
        {MPI_UNSIGNED_SHORT, COVEY_U16}, {MPI_UINT16_T, COVEY_U16}, {MPI_INT, COVEY_I32},
        {MPI_INT32_T, COVEY_I32}, {MPI_UNSIGNED, COVEY_U32}, {MPI_UINT32_T, COVEY_U32},
        {MPI_LONG_LONG, COVEY_I64}, {MPI_INT64_T, COVEY_I64}, {MPI_UNSIGNED_LONG_LONG, COVEY_U64},
        {MPI_UINT64_T, COVEY_U64}, {MPI_LONG, sizeof(long) == 8 ? COVEY_I64 : COVEY_I32},
        {MPI_UNSIGNED_LONG, sizeof(long) == 8 ? COVEY_U64 : COVEY_U32}, {MPI_AINT, COVEY_I64},
        {MPI_OFFSET, COVEY_I64}, {MPI_COUNT, COVEY_I64}, {MPI_FLOAT, COVEY_F32},
        {MPI_DOUBLE, COVEY_F64}, {MPI_INTEGER, COVEY_I32}, {MPI_REAL, COVEY_F32},
        {MPI_DOUBLE_PRECISION, COVEY_F64}, {MPI_INTEGER1, COVEY_I8}, {MPI_INTEGER2, COVEY_I16},
        {MPI_INTEGER4, COVEY_I32}, {MPI_INTEGER8, COVEY_I64}, {MPI_REAL4, COVEY_F32},
        {MPI_REAL8, COVEY_F64},
    };
    static const int bytes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8};
    int size = 0;
    PMPI_Type_size(type, &size);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        /* A compiler may be told other sizes for Fortran's types. */
        if (known[i].type == type && type != MPI_DATATYPE_NULL && bytes[known[i].element] == size)
            return known[i].element;
    return -1;
}

/* A value and an index beside it, as MPI_MINLOC takes them. */
static int covey_mpi_pair(MPI_Datatype type, covey_layout **out)
{
    const struct {
        MPI_Datatype type, value, index;
        int64_t at;
    } known[] = {
        {MPI_FLOAT_INT, MPI_FLOAT, MPI_INT, offsetof(struct { float a; int b; }, b)},
        {MPI_DOUBLE_INT, MPI_DOUBLE, MPI_INT, offsetof(struct { double a; int b; }, b)},
        {MPI_LONG_INT, MPI_LONG, MPI_INT, offsetof(struct { long a; int b; }, b)},
        {MPI_SHORT_INT, MPI_SHORT, MPI_INT, offsetof(struct { short a; int b; }, b)},
        {MPI_2INT, MPI_INT, MPI_INT, offsetof(struct { int a; int b; }, b)},
        {MPI_LONG_DOUBLE_INT, MPI_LONG_DOUBLE, MPI_INT, offsetof(struct { long double a; int b; }, b)},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].type != type)
            continue;
        covey_layout *value = NULL, *index = NULL;
        int result = covey_layout_of_mpi(known[i].value, &value);
        if (result == COVEY_OK)
            result = covey_layout_of_mpi(known[i].index, &index);
        struct covey_member members[] = {{1, 0, value}, {1, known[i].at, index}};
        if (result == COVEY_OK)
            result = covey_layout_struct(members, 2, out);
        covey_layout_free(value), covey_layout_free(index);
        return result;
    }
    return COVEY_ERR_UNSUPPORTED;
}

static int covey_mpi_repeat(int element, uint64_t count, covey_layout **out)
{
    covey_layout *one;
    int result = covey_layout_element(element, &one);
    if (result != COVEY_OK)
        return result;
    result = covey_layout_contiguous(count, one, out);
    covey_layout_free(one);
    return result;
}

/* A type that MPI itself has. What has no element, such as a long double, is bytes. */
static int covey_mpi_named(MPI_Datatype type, covey_layout **out)
{
    MPI_Aint lower, extent;
    int size, element = covey_mpi_element(type);
    if (element >= 0)
        return covey_layout_element(element, out);
    if (covey_mpi_pair(type, out) == COVEY_OK)
        return COVEY_OK;
    PMPI_Type_size(type, &size);
    PMPI_Type_get_extent(type, &lower, &extent);
    if (lower != 0 || extent != size || size <= 0)
        return COVEY_ERR_UNSUPPORTED;
    if (type == MPI_COMPLEX || type == MPI_DOUBLE_COMPLEX || type == MPI_C_FLOAT_COMPLEX || type == MPI_C_DOUBLE_COMPLEX)
        return covey_mpi_repeat(size == 8 ? COVEY_F32 : COVEY_F64, 2, out);
    return covey_mpi_repeat(COVEY_BYTE, (uint64_t)size, out);
}

/* ---- constructors ---- */

/* What MPI_Type_get_contents answers. */
struct covey_mpi_contents {
    int *n;
    MPI_Aint *a;
    MPI_Datatype *t;
};

/* `count` blocks of n[1..] or of one size, displacements in extents (n) or bytes (a). */
static int covey_mpi_blocks(const struct covey_mpi_contents *is, int combiner, const covey_layout *inner, covey_layout **out)
{
    int count = is->n[0];
    int of_one_size = combiner == MPI_COMBINER_INDEXED_BLOCK || combiner == MPI_COMBINER_HINDEXED_BLOCK;
    int in_extents = combiner == MPI_COMBINER_INDEXED || combiner == MPI_COMBINER_INDEXED_BLOCK;
    const int *at = of_one_size ? is->n + 2 : is->n + 1 + count;
    struct covey_block *blocks = calloc((size_t)count + 1, sizeof *blocks);
    if (!blocks)
        return COVEY_ERR_ENTRIES;
    for (int i = 0; i < count; i++) {
        blocks[i].count = (uint64_t)is->n[of_one_size ? 1 : 1 + i];
        blocks[i].displacement = in_extents ? at[i] : is->a[i];
    }
    int result = in_extents ? covey_layout_indexed(blocks, (size_t)count, inner, out)
                            : covey_layout_hindexed(blocks, (size_t)count, inner, out);
    free(blocks);
    return result;
}

static int covey_mpi_struct(const struct covey_mpi_contents *is, covey_layout *const *inner, covey_layout **out)
{
    int count = is->n[0];
    struct covey_member *members = calloc((size_t)count + 1, sizeof *members);
    if (!members)
        return COVEY_ERR_ENTRIES;
    for (int i = 0; i < count; i++) {
        members[i].count = (uint64_t)is->n[1 + i];
        members[i].displacement = is->a[i];
        members[i].layout = inner[i];
    }
    int result = covey_layout_struct(members, (size_t)count, out);
    free(members);
    return result;
}

static int covey_mpi_subarray(const struct covey_mpi_contents *is, const covey_layout *inner, covey_layout **out)
{
    int dims = is->n[0];
    const int *sizes = is->n + 1, *parts = sizes + dims, *starts = parts + dims;
    struct covey_axis *axes = calloc((size_t)dims + 1, sizeof *axes);
    if (!axes)
        return COVEY_ERR_ENTRIES;
    for (int i = 0; i < dims; i++)
        axes[i] = (struct covey_axis){(uint64_t)sizes[i], (uint64_t)starts[i], (uint64_t)parts[i]};
    int order = is->n[1 + 3 * dims] == MPI_ORDER_C ? COVEY_ORDER_C : COVEY_ORDER_FORTRAN;
    int result = covey_layout_subarray(axes, (size_t)dims, order, inner, out);
    free(axes);
    return result;
}

/* One axis of a distributed array: this process's elements of `size`, `stride` bytes apart. */
static int covey_mpi_axis(int64_t size, int how, int64_t piece, int64_t processes, int64_t me, int64_t stride,
                          const covey_layout *inner, covey_layout **out)
{
    struct covey_bounds bounds;
    covey_layout *spaced;
    covey_layout_bounds(inner, &bounds);
    if (how == MPI_DISTRIBUTE_NONE)
        piece = size, processes = 1, me = 0;
    else if (piece == MPI_DISTRIBUTE_DFLT_DARG)
        piece = how == MPI_DISTRIBUTE_BLOCK ? (size + processes - 1) / processes : 1;
    if (piece <= 0)
        piece = 1;
    int64_t round = how == MPI_DISTRIBUTE_CYCLIC ? piece * processes : size + piece * processes;
    size_t count = 0, most = (size_t)((size + round - 1) / round) + 1;
    struct covey_block *blocks = most > 1 << 18 ? NULL : calloc(most + 1, sizeof *blocks);
    if (!blocks)
        return COVEY_ERR_ENTRIES;
    for (int64_t at = me * piece; at < size; at += round)
        blocks[count++] = (struct covey_block){(uint64_t)(at + piece < size ? piece : size - at), at};
    int result = covey_layout_resized(bounds.lower, stride, inner, &spaced);
    if (result == COVEY_OK) {
        result = covey_layout_indexed(blocks, count, spaced, out);
        covey_layout_free(spaced);
    }
    free(blocks);
    return result;
}

/* The part of one process of a distributed array (MPI-4, section 5.1.4). */
static int covey_mpi_darray(const struct covey_mpi_contents *is, const covey_layout *element, covey_layout **out)
{
    int64_t rank = is->n[1], dims = is->n[2];
    const int *sizes = is->n + 3, *hows = sizes + dims, *pieces = hows + dims, *grid = pieces + dims;
    int is_c = grid[dims] == MPI_ORDER_C;
    struct covey_bounds bounds;
    covey_layout *layout, *next;
    int64_t *coordinates = calloc((size_t)dims + 1, sizeof *coordinates);
    int result = coordinates ? covey_layout_dup(element, &layout) : COVEY_ERR_ENTRIES;
    if (result != COVEY_OK) {
        free(coordinates);
        return result;
    }
    /* The grid of processes is in C order, whatever the array's is. */
    for (int64_t i = dims - 1; i >= 0; i--) {
        coordinates[i] = rank % grid[i];
        rank /= grid[i];
    }
    covey_layout_bounds(element, &bounds);
    int64_t stride = bounds.upper - bounds.lower;
    for (int64_t i = 0; i < dims && result == COVEY_OK; i++) {
        int64_t d = is_c ? dims - 1 - i : i;
        result = covey_mpi_axis(sizes[d], hows[d], pieces[d], grid[d], coordinates[d], stride, layout, &next);
        if (result == COVEY_OK) {
            covey_layout_free(layout);
            layout = next;
            if (__builtin_mul_overflow(stride, (int64_t)sizes[d], &stride))
                result = COVEY_ERR_OVERFLOW;
        }
    }
    if (result == COVEY_OK)
        result = covey_layout_resized(bounds.lower, stride, layout, out);
    covey_layout_free(layout);
    free(coordinates);
    return result;
}

static int covey_mpi_build(int combiner, const struct covey_mpi_contents *is, covey_layout **inner, covey_layout **out)
{
    switch (combiner) {
    case MPI_COMBINER_DUP:
        return covey_layout_dup(inner[0], out);
    case MPI_COMBINER_CONTIGUOUS:
        return covey_layout_contiguous((uint64_t)is->n[0], inner[0], out);
    case MPI_COMBINER_VECTOR:
        return covey_layout_vector((uint64_t)is->n[0], (uint64_t)is->n[1], is->n[2], inner[0], out);
    case MPI_COMBINER_HVECTOR:
        return covey_layout_hvector((uint64_t)is->n[0], (uint64_t)is->n[1], is->a[0], inner[0], out);
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK:
        return covey_mpi_blocks(is, combiner, inner[0], out);
    case MPI_COMBINER_STRUCT:
        return covey_mpi_struct(is, inner, out);
    case MPI_COMBINER_SUBARRAY:
        return covey_mpi_subarray(is, inner[0], out);
    case MPI_COMBINER_DARRAY:
        return covey_mpi_darray(is, inner[0], out);
    case MPI_COMBINER_RESIZED:
        return covey_layout_resized(is->a[0], is->a[1], inner[0], out);
    default:
        return COVEY_ERR_UNSUPPORTED;
    }
}

/* ---- the whole type ---- */

/* Whether a combiner is that of a type that MPI itself has, which has no contents and is never freed. */
static int covey_mpi_is_named(int combiner)
{
    return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
           combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

/* The envelope. Types of large counts answer COVEY_ERR_UNSUPPORTED: MPI calls asking for them an error. */
static int covey_mpi_envelope(MPI_Datatype type, int *integers, int *addresses, int *types, int *combiner)
{
#if MPI_VERSION >= 4
    MPI_Count n, a, large, t;
    if (PMPI_Type_get_envelope_c(type, &n, &a, &large, &t, combiner) != MPI_SUCCESS || large > 0)
        return COVEY_ERR_UNSUPPORTED;
#endif
    int code = PMPI_Type_get_envelope(type, integers, addresses, types, combiner);
    return code == MPI_SUCCESS ? COVEY_OK : COVEY_ERR_UNSUPPORTED;
}

/* Frees a type that MPI_Type_get_contents gave. */
static void covey_mpi_release(MPI_Datatype type)
{
    int integers, addresses, types, combiner;
    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    if (!covey_mpi_is_named(combiner))
        PMPI_Type_free(&type);
}

/* The layout with MPI's own bounds. */
static int covey_mpi_with_bounds(MPI_Datatype type, covey_layout *layout, covey_layout **out)
{
    struct covey_bounds bounds;
    MPI_Aint lower, extent;
    MPI_Count size;
    PMPI_Type_get_extent(type, &lower, &extent);
    PMPI_Type_size_x(type, &size);
    covey_layout_bounds(layout, &bounds);
    if (bounds.size != (uint64_t)size) {
        covey_layout_free(layout);
        return COVEY_ERR_UNSUPPORTED;
    }
    if (bounds.lower == lower && bounds.upper - bounds.lower == extent) {
        *out = layout;
        return COVEY_OK;
    }
    int result = covey_layout_resized(lower, extent, layout, out);
    covey_layout_free(layout);
    return result;
}

static int covey_mpi_derived(MPI_Datatype type, int integers, int addresses, int types, int combiner, covey_layout **out)
{
    struct covey_mpi_contents is = {
        calloc((size_t)integers + 1, sizeof *is.n),
        calloc((size_t)addresses + 1, sizeof *is.a),
        calloc((size_t)types + 1, sizeof *is.t),
    };
    covey_layout **inner = calloc((size_t)types + 1, sizeof *inner);
    int result = COVEY_ERR_ENTRIES;
    if (is.n && is.a && is.t && inner &&
        PMPI_Type_get_contents(type, integers, addresses, types, is.n, is.a, is.t) == MPI_SUCCESS) {
        result = COVEY_OK;
        for (int i = 0; i < types; i++) {
            if (result == COVEY_OK)
                result = covey_layout_of_mpi(is.t[i], &inner[i]);
            covey_mpi_release(is.t[i]);
        }
        if (result == COVEY_OK)
            result = covey_mpi_build(combiner, &is, inner, out);
        for (int i = 0; i < types; i++)
            covey_layout_free(inner[i]);
    }
    free(is.n), free(is.a), free(is.t), free(inner);
    return result;
}

/* The layout of a datatype, which the caller frees; the datatype is not needed any more. */
static int covey_layout_of_mpi(MPI_Datatype type, covey_layout **out)
{
    int integers, addresses, types, combiner;
    covey_layout *layout = NULL;
    if (type == MPI_DATATYPE_NULL)
        return COVEY_ERR_ARGUMENT;
    int result = covey_mpi_envelope(type, &integers, &addresses, &types, &combiner);
    if (result != COVEY_OK)
        return result;
    result = covey_mpi_is_named(combiner) ? covey_mpi_named(type, &layout)
                                          : covey_mpi_derived(type, integers, addresses, types, combiner, &layout);
    return result == COVEY_OK ? covey_mpi_with_bounds(type, layout, out) : result;
}

#endif
