/* Random datatypes, nested, that name no byte twice: the same on every rank for the same seed. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed;

/* A number below `below`. */
static int dice(int below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((seed >> 33) % (uint64_t)below);
}

/* Which of MPI's own types the last random type has. MPICH 4.0 divides by zero when it is asked how many
 * elements of some mixed types have come. */
static unsigned kinds;

static __attribute__((unused)) int is_of_one_kind(void)
{
    return (kinds & (kinds - 1)) == 0 && !(kinds & (3u << 9));
}

/* Without MPI_LONG_DOUBLE: of its 16 bytes MPICH copies the 10 that have a meaning. */
static MPI_Datatype named(void)
{
    MPI_Datatype all[] = {MPI_CHAR, MPI_SHORT, MPI_INT, MPI_FLOAT, MPI_DOUBLE, MPI_LONG_LONG, MPI_FLOAT,
                          MPI_DOUBLE, MPI_C_DOUBLE_COMPLEX, MPI_DOUBLE_INT, MPI_SHORT_INT, MPI_C_FLOAT_COMPLEX};
    int which = dice(12);
    kinds |= 1u << which;
    return all[which];
}

static int is_named(MPI_Datatype type)
{
    int a, b, c, combiner;
    MPI_Type_get_envelope(type, &a, &b, &c, &combiner);
    return combiner == MPI_COMBINER_NAMED;
}

static MPI_Datatype derived(int depth);

static MPI_Datatype inner_type(int depth)
{
    return depth <= 0 || dice(3) == 0 ? named() : derived(depth - 1);
}

static void drop(MPI_Datatype type)
{
    if (!is_named(type))
        MPI_Type_free(&type);
}

/* Lengths and places of blocks that do not meet, in units of an extent; sometimes the last one first. */
static int blocks(int *lengths, int *places, int longest)
{
    int count = 1 + dice(6), at = dice(3);
    for (int i = 0; i < count; i++) {
        lengths[i] = longest < 0 ? -longest : 1 + dice(longest);
        places[i] = at;
        at += lengths[i] + dice(3);
    }
    if (dice(3) == 0)
        for (int i = 0, j = count - 1; i < j; i++, j--) {
            int length = lengths[i], place = places[i];
            lengths[i] = lengths[j], places[i] = places[j];
            lengths[j] = length, places[j] = place;
        }
    return count;
}

static MPI_Datatype subarray(MPI_Datatype inner)
{
    int dims = 1 + dice(3), sizes[3], parts[3], starts[3];
    MPI_Datatype made;
    for (int i = 0; i < dims; i++) {
        sizes[i] = 1 + dice(6);
        parts[i] = 1 + dice(sizes[i]);
        starts[i] = dice(sizes[i] - parts[i] + 1);
    }
    MPI_Type_create_subarray(dims, sizes, parts, starts, dice(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, inner, &made);
    return made;
}

static MPI_Datatype darray(MPI_Datatype inner)
{
    int dims = 1 + dice(3), sizes[3], hows[3], pieces[3], grid[3], processes = 1;
    MPI_Datatype made;
    for (int i = 0; i < dims; i++) {
        int how = dice(3);
        sizes[i] = 3 + dice(6);
        grid[i] = how == 0 ? 1 : 1 + dice(3);
        hows[i] = how == 0 ? MPI_DISTRIBUTE_NONE : how == 1 ? MPI_DISTRIBUTE_BLOCK : MPI_DISTRIBUTE_CYCLIC;
        pieces[i] = how == 2 && dice(2) ? 1 + dice(2) : MPI_DISTRIBUTE_DFLT_DARG;
        processes *= grid[i];
    }
    MPI_Type_create_darray(processes, dice(processes), dims, sizes, hows, pieces, grid,
                           dice(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, inner, &made);
    return made;
}

static MPI_Datatype structure(int depth)
{
    int count = 1 + dice(4), lengths[4];
    MPI_Aint places[4], at = 0;
    MPI_Datatype members[4], made;
    for (int i = 0; i < count; i++) {
        MPI_Aint lower, extent;
        members[i] = inner_type(depth - 1);
        MPI_Type_get_extent(members[i], &lower, &extent);
        lengths[i] = 1 + dice(3);
        places[i] = at - lower;
        at += lengths[i] * extent + dice(2) * 8;
        at = (at + 7) / 8 * 8;
    }
    MPI_Type_create_struct(count, lengths, places, members, &made);
    for (int i = 0; i < count; i++)
        drop(members[i]);
    return made;
}

/* Whether a type has data, all of it within its bounds: copies side by side do not meet then. */
static int is_sound(MPI_Datatype type)
{
    MPI_Count size;
    MPI_Aint lower, extent, true_lower, true_extent;
    MPI_Type_size_x(type, &size);
    MPI_Type_get_extent(type, &lower, &extent);
    MPI_Type_get_true_extent(type, &true_lower, &true_extent);
    return size > 0 && true_lower >= lower && true_lower + true_extent <= lower + extent;
}

static MPI_Datatype any_derived(int depth);

static MPI_Datatype derived(int depth)
{
    for (;;) {
        MPI_Datatype made = any_derived(depth);
        if (is_sound(made))
            return made;
        MPI_Type_free(&made);
    }
}

static MPI_Datatype any_derived(int depth)
{
    int lengths[8], places[8], how = dice(13), count, block;
    MPI_Aint lower, extent, far[8];
    MPI_Datatype made;
    if (how == 0)
        return structure(depth);
    MPI_Datatype inner = inner_type(depth);
    MPI_Type_get_extent(inner, &lower, &extent);
    switch (how) {
    case 1:
        MPI_Type_contiguous(1 + dice(4), inner, &made);
        break;
    case 2:
    case 3:
        block = 1 + dice(3);
        MPI_Type_vector(1 + dice(40), block, (block + dice(3)) * (dice(6) ? 1 : -1), inner, &made);
        break;
    case 4:
    case 5:
        block = 1 + dice(3);
        MPI_Type_create_hvector(1 + dice(40), block, block * extent + dice(4) * 8, inner, &made);
        break;
    case 6:
        count = blocks(lengths, places, 3);
        MPI_Type_indexed(count, lengths, places, inner, &made);
        break;
    case 7:
        count = blocks(lengths, places, 3);
        for (int i = 0; i < count; i++)
            far[i] = places[i] * (extent + 8);
        for (int i = 0; i < count; i++)
            lengths[i] = 1;
        MPI_Type_create_hindexed(count, lengths, far, inner, &made);
        break;
    case 8:
        block = 1 + dice(3);
        count = blocks(lengths, places, -block);
        MPI_Type_create_indexed_block(count, block, places, inner, &made);
        break;
    case 9:
        block = 1 + dice(3);
        count = blocks(lengths, places, -block);
        for (int i = 0; i < count; i++)
            far[i] = places[i] * extent;
        MPI_Type_create_hindexed_block(count, block, far, inner, &made);
        break;
    case 10:
        made = subarray(inner);
        break;
    case 11:
        made = darray(inner);
        break;
    default:
        if (dice(3) == 0)
            MPI_Type_dup(inner, &made);
        else
            MPI_Type_create_resized(inner, lower, extent + 8 * dice(4), &made);
    }
    drop(inner);
    return made;
}

/* A committed type with some data. */
static MPI_Datatype random_type(int most)
{
    for (;;) {
        kinds = 0;
        MPI_Datatype made = derived(3);
        MPI_Count size;
        MPI_Aint lower, extent;
        MPI_Type_size_x(made, &size);
        MPI_Type_get_extent(made, &lower, &extent);
        if (size <= most && extent <= 16 * most) {
            MPI_Type_commit(&made);
            return made;
        }
        MPI_Type_free(&made);
    }
}

/* ---- memory for them ---- */

struct memory {
    unsigned char *base, *at;
    size_t bytes;
};

/* Room for so many copies, with an edge on both sides, filled with what `fill` says. */
static struct memory memory_for(MPI_Datatype type, int count, unsigned fill)
{
    enum { EDGE = 64 };
    MPI_Aint lower, extent, first, span;
    MPI_Type_get_extent(type, &lower, &extent);
    MPI_Type_get_true_extent(type, &first, &span);
    struct memory made;
    made.bytes = (size_t)(extent * (count > 0 ? count : 1) + span + 2 * EDGE);
    made.base = malloc(made.bytes);
    made.at = made.base + EDGE - first;
    for (size_t i = 0; i < made.bytes; i++) {
        fill = fill * 1664525u + 1013904223u;
        made.base[i] = (unsigned char)(fill >> 24);
    }
    return made;
}

static __attribute__((unused)) uint64_t hash_of(const void *bytes, size_t count, uint64_t hash)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * 0x100000001B3ull;
    return hash;
}
