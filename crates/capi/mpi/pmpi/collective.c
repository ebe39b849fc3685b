/* Collective operations.
 *
 * MPI libraries cut large collective messages in segments of whole elements, so all ranks must agree on
 * how large an element is. Therefore, in collective operations every derived type becomes bytes, whether that
 * pays or not: contiguous ones where they lie, others packed; those that we cannot describe are packed by MPI
 * itself. MPI's own types of a power of two bytes stay: segments are cut at powers of two. */
#include "pmpi.h"

/* Blocks of one side of an operation, one for each rank, as the program has them. */
struct blocks {
    char *data;
    int ranks;
    /* One count and type for all, or one for each. */
    int count;
    MPI_Datatype type;
    const int *counts;
    const MPI_Datatype *types;
    /* In extents, or in bytes with `types`; NULL: one after the other. */
    const int *displacements;
    /* In bytes, in place of those: of MPI_Neighbor_alltoallw. */
    const MPI_Aint *places;
};

/* What MPI is given in place of it. */
struct side {
    struct blocks blocks;
    /* 0: as the program has it; nothing is packed. */
    int is_ours;
    char *data;
    int count, *counts, *displacements;
    MPI_Datatype type, *types;
    /* NULL where the blocks are taken from where they lie. */
    char *buffer;
    uint64_t bytes;
};

/* ---- one block ---- */

struct block {
    char *at;
    int count;
    MPI_Datatype type;
    struct facts facts;
    uint64_t bytes;
};

static int block_of(const struct blocks *all, int rank, struct block *block)
{
    block->count = all->counts ? all->counts[rank] : all->count;
    block->type = all->types ? all->types[rank] : all->type;
    if (block->count < 0 || !type_facts(block->type, &block->facts))
        return 0;
    int64_t step = all->types ? 1 : block->facts.extent;
    int64_t place = all->places ? all->places[rank]
                    : all->displacements ? all->displacements[rank] : (int64_t)rank * all->count;
    block->at = all->data + place * step;
    block->bytes = (uint64_t)block->facts.size * (uint64_t)block->count;
    return 1;
}

static void pack_block(const struct block *block, char *into)
{
    int position = 0;
    if (block->bytes == 0)
        return;
    if (block->facts.is_contiguous) {
        memcpy(into, block->at + block->facts.lower, block->bytes);
        return;
    }
    struct ready *ready = type_ready(block->type, (uint64_t)block->count, TO_READ);
    if (ready)
        ready_pack(ready, block->at, into);
    else
        real.Pack(block->at, block->count, block->type, into, (int)block->bytes, &position, MPI_COMM_SELF);
    ready_release(ready);
}

static void unpack_block(const struct block *block, const char *from)
{
    int position = 0;
    if (block->bytes == 0)
        return;
    if (block->facts.is_contiguous) {
        memcpy(block->at + block->facts.lower, from, block->bytes);
        return;
    }
    struct ready *ready = type_ready(block->type, (uint64_t)block->count, TO_WRITE);
    if (ready)
        ready_unpack(ready, from, block->bytes, block->at);
    else
        real.Unpack(from, (int)block->bytes, &position, block->at, block->count, block->type, MPI_COMM_SELF);
    ready_release(ready);
}

/* ---- a side ---- */

static void side_close(struct side *side)
{
    buffer_give(side->buffer, side->bytes);
    free(side->counts), free(side->displacements), free(side->types);
}

/* Blocks of one contiguous type are taken from where they lie. */
static int in_place_of(struct side *side, const struct facts *facts)
{
    const struct blocks *all = &side->blocks;
    for (int rank = 0; rank < all->ranks && all->counts; rank++) {
        int64_t bytes = all->counts[rank] * facts->size, place = all->displacements[rank] * facts->size;
        if (all->counts[rank] < 0 || bytes > INT_MAX || place > INT_MAX || place < INT_MIN)
            return 0;
        side->counts[rank] = (int)bytes;
        side->displacements[rank] = (int)place;
    }
    side->data = all->data + facts->lower;
    side->count = (int)(all->count * facts->size);
    return 1;
}

/* Where each block is packed. */
static int lay_out(struct side *side)
{
    struct block block;
    for (int rank = 0; rank < side->blocks.ranks; rank++) {
        if (!block_of(&side->blocks, rank, &block) || block.bytes > INT_MAX)
            return 0;
        /* Places are integers of MPI where they are listed; the peers do not mind who packs. */
        if (side->counts && side->bytes > INT_MAX)
            return 0;
        side->count = (int)block.bytes;
        if (side->counts) {
            side->counts[rank] = (int)block.bytes;
            side->displacements[rank] = (int)side->bytes;
        }
        side->bytes += block.bytes;
    }
    side->buffer = buffer_take(side->bytes);
    side->data = side->buffer;
    return side->buffer != NULL;
}

/* Whether all types of a side stay as they are. */
static int is_plain(const struct blocks *all)
{
    if (!all->types)
        return type_is_plain(all->type);
    for (int rank = 0; rank < all->ranks; rank++)
        if (!type_is_plain(all->types[rank]))
            return 0;
    return 1;
}

/* A side that is not there, or that MPI takes as it is. */
static void side_as_is(struct side *side, const struct blocks *all)
{
    *side = (struct side){.blocks = *all};
}

/* Takes a side. 0: the operation is left to MPI. */
static int side_open(struct side *side, const struct blocks *all)
{
    struct facts facts = {0};
    side_as_is(side, all);
    if (is_plain(all))
        return 1;
    if (all->count < 0 || (!all->types && !type_facts(all->type, &facts)))
        return 0;
    if (all->counts) {
        side->counts = calloc((size_t)all->ranks + 1, sizeof *side->counts);
        side->displacements = calloc((size_t)all->ranks + 1, sizeof *side->displacements);
    }
    if (all->types)
        side->types = calloc((size_t)all->ranks + 1, sizeof *side->types);
    int has_room = !all->counts || (side->counts && side->displacements && (!all->types || side->types));
    side->type = MPI_BYTE;
    for (int rank = 0; side->types && rank < all->ranks; rank++)
        side->types[rank] = MPI_BYTE;
    int lies = !all->types && facts.is_contiguous && facts.size > 0 && all->count <= INT_MAX / facts.size;
    if (has_room && ((lies && in_place_of(side, &facts)) || lay_out(side))) {
        side->is_ours = 1;
        return 1;
    }
    side_close(side);
    return 0;
}

/* Packs one block, or all (-1). */
static void side_pack(struct side *side, int only)
{
    struct block block;
    for (int rank = 0; side->buffer && rank < side->blocks.ranks; rank++) {
        char *at = side->buffer + (side->counts ? side->displacements[rank] : (int64_t)rank * side->count);
        if ((only < 0 || only == rank) && block_of(&side->blocks, rank, &block))
            pack_block(&block, at);
    }
}

/* Unpacks all blocks but one (-1: all). */
static void side_unpack(struct side *side, int but)
{
    struct block block;
    for (int rank = 0; side->buffer && rank < side->blocks.ranks; rank++) {
        const char *at = side->buffer + (side->counts ? side->displacements[rank] : (int64_t)rank * side->count);
        if (rank != but && block_of(&side->blocks, rank, &block))
            unpack_block(&block, at);
    }
}

/* ---- an operation ---- */

struct operation {
    struct side out, in;
    int rank, ranks;
};

/* 0 when an operation on this communicator is left to MPI: two groups have two sets of ranks. */
static int operation_begin(struct operation *operation, MPI_Comm comm)
{
    int is_inter = 1;
    if (settings.is_off || comm == MPI_COMM_NULL || PMPI_Comm_test_inter(comm, &is_inter) != MPI_SUCCESS || is_inter)
        return 0;
    PMPI_Comm_rank(comm, &operation->rank);
    PMPI_Comm_size(comm, &operation->ranks);
    return 1;
}

/* Takes both sides; without `ours` the operation is left to MPI. A side that is not there has no ranks. */
static int operation_open(struct operation *operation, const struct blocks *out, const struct blocks *in)
{
    if (!out->ranks)
        side_as_is(&operation->out, out);
    else if (!side_open(&operation->out, out))
        return 0;
    if (!in->ranks)
        side_as_is(&operation->in, in);
    else if (!side_open(&operation->in, in)) {
        side_close(&operation->out);
        return 0;
    }
    if (operation->out.is_ours || operation->in.is_ours) {
        COUNT(collectives, 1);
        return 1;
    }
    return 0;
}

static int operation_end(struct operation *operation, int code)
{
    side_close(&operation->out);
    side_close(&operation->in);
    look_after_orphans();
    return code;
}

#define GIVEN(side, field, otherwise) ((side).is_ours ? (side).field : (otherwise))

static const struct blocks nothing;

/* ---- to and from a root ---- */

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    struct operation on;
    if (type_is_plain(type) || !operation_begin(&on, comm))
        return real.Bcast(data, count, type, root, comm);
    struct blocks all = {.data = data, .ranks = 1, .count = count, .type = type};
    if (!operation_open(&on, &all, &nothing))
        return real.Bcast(data, count, type, root, comm);
    if (on.rank == root)
        side_pack(&on.out, -1);
    int code = real.Bcast(on.out.data, on.out.count, on.out.type, root, comm);
    if (on.rank != root && code == MPI_SUCCESS)
        side_unpack(&on.out, -1);
    return operation_end(&on, code);
}
ALSO_AS_PMPI(Bcast);

/* The side of every rank, unless it is the root's own in place. */
static struct blocks one(const void *data, int count, MPI_Datatype type)
{
    return data == MPI_IN_PLACE ? nothing : (struct blocks){.data = (char *)data, .ranks = 1, .count = count, .type = type};
}

int MPI_Gather(const void *out, int out_count, MPI_Datatype out_type, void *in, int in_count, MPI_Datatype in_type,
               int root, MPI_Comm comm)
{
    struct operation on;
    if (!operation_begin(&on, comm))
        return real.Gather(out, out_count, out_type, in, in_count, in_type, root, comm);
    struct blocks from = one(out, out_count, out_type), to = nothing;
    if (on.rank == root)
        to = (struct blocks){.data = in, .ranks = on.ranks, .count = in_count, .type = in_type};
    if (!operation_open(&on, &from, &to))
        return real.Gather(out, out_count, out_type, in, in_count, in_type, root, comm);
    side_pack(&on.out, -1);
    int code = real.Gather(GIVEN(on.out, data, out), GIVEN(on.out, count, out_count), GIVEN(on.out, type, out_type),
                           GIVEN(on.in, data, in), GIVEN(on.in, count, in_count), GIVEN(on.in, type, in_type), root, comm);
    if (code == MPI_SUCCESS)
        side_unpack(&on.in, out == MPI_IN_PLACE ? root : -1);
    return operation_end(&on, code);
}
ALSO_AS_PMPI(Gather);

int MPI_Gatherv(const void *out, int out_count, MPI_Datatype out_type, void *in, const int *in_counts, const int *in_places,
                MPI_Datatype in_type, int root, MPI_Comm comm)
{
    struct operation on;
    if (!operation_begin(&on, comm))
        return real.Gatherv(out, out_count, out_type, in, in_counts, in_places, in_type, root, comm);
    struct blocks from = one(out, out_count, out_type), to = nothing;
    if (on.rank == root)
        to = (struct blocks){.data = in, .ranks = on.ranks, .type = in_type, .counts = in_counts, .displacements = in_places};
    if (!operation_open(&on, &from, &to))
        return real.Gatherv(out, out_count, out_type, in, in_counts, in_places, in_type, root, comm);
    side_pack(&on.out, -1);
    int code = real.Gatherv(GIVEN(on.out, data, out), GIVEN(on.out, count, out_count), GIVEN(on.out, type, out_type),
                            GIVEN(on.in, data, in), GIVEN(on.in, counts, in_counts),
                            GIVEN(on.in, displacements, in_places), GIVEN(on.in, type, in_type), root, comm);
    if (code == MPI_SUCCESS)
        side_unpack(&on.in, out == MPI_IN_PLACE ? root : -1);
    return operation_end(&on, code);
}
ALSO_AS_PMPI(Gatherv);

int MPI_Scatter(const void *out, int out_count, MPI_Datatype out_type, void *in, int in_count, MPI_Datatype in_type,
                int root, MPI_Comm comm)
{
    struct operation on;
    if (!operation_begin(&on, comm))
        return real.Scatter(out, out_count, out_type, in, in_count, in_type, root, comm);
    struct blocks from = nothing, to = one(in, in_count, in_type);
    if (on.rank == root)
        from = (struct blocks){.data = (char *)out, .ranks = on.ranks, .count = out_count, .type = out_type};
    if (!operation_open(&on, &from, &to))
        return real.Scatter(out, out_count, out_type, in, in_count, in_type, root, comm);
    side_pack(&on.out, -1);
    int code = real.Scatter(GIVEN(on.out, data, out), GIVEN(on.out, count, out_count), GIVEN(on.out, type, out_type),
                            GIVEN(on.in, data, in), GIVEN(on.in, count, in_count), GIVEN(on.in, type, in_type), root, comm);
    if (code == MPI_SUCCESS)
        side_unpack(&on.in, -1);
    return operation_end(&on, code);
}
ALSO_AS_PMPI(Scatter);

int MPI_Scatterv(const void *out, const int *out_counts, const int *out_places, MPI_Datatype out_type, void *in,
                 int in_count, MPI_Datatype in_type, int root, MPI_Comm comm)
{
    struct operation on;
    if (!operation_begin(&on, comm))
        return real.Scatterv(out, out_counts, out_places, out_type, in, in_count, in_type, root, comm);
    struct blocks from = nothing, to = one(in, in_count, in_type);
    if (on.rank == root)
        from = (struct blocks){.data = (char *)out, .ranks = on.ranks, .type = out_type, .counts = out_counts,
                               .displacements = out_places};
    if (!operation_open(&on, &from, &to))
        return real.Scatterv(out, out_counts, out_places, out_type, in, in_count, in_type, root, comm);
    side_pack(&on.out, -1);
    int code = real.Scatterv(GIVEN(on.out, data, out), GIVEN(on.out, counts, out_counts),
                             GIVEN(on.out, displacements, out_places), GIVEN(on.out, type, out_type),
                             GIVEN(on.in, data, in), GIVEN(on.in, count, in_count), GIVEN(on.in, type, in_type), root, comm);
    if (code == MPI_SUCCESS)
        side_unpack(&on.in, -1);
    return operation_end(&on, code);
}
ALSO_AS_PMPI(Scatterv);

/* ---- from all to all ---- */

int MPI_Allgather(const void *out, int out_count, MPI_Datatype out_type, void *in, int in_count, MPI_Datatype in_type, MPI_Comm comm)
{
    struct operation on;
    if (!operation_begin(&on, comm))
        return real.Allgather(out, out_count, out_type, in, in_count, in_type, comm);
    struct blocks from = one(out, out_count, out_type);
    struct blocks to = {.data = in, .ranks = on.ranks, .count = in_count, .type = in_type};
    if (!operation_open(&on, &from, &to))
        return real.Allgather(out, out_count, out_type, in, in_count, in_type, comm);
    side_pack(&on.out, -1);
    if (out == MPI_IN_PLACE)
        side_pack(&on.in, on.rank);
    int code = real.Allgather(GIVEN(on.out, data, out), GIVEN(on.out, count, out_count), GIVEN(on.out, type, out_type),
                              GIVEN(on.in, data, in), GIVEN(on.in, count, in_count), GIVEN(on.in, type, in_type), comm);
    if (code == MPI_SUCCESS)
        side_unpack(&on.in, out == MPI_IN_PLACE ? on.rank : -1);
    return operation_end(&on, code);
}
ALSO_AS_PMPI(Allgather);

int MPI_Allgatherv(const void *out, int out_count, MPI_Datatype out_type, void *in, const int *in_counts,
                   const int *in_places, MPI_Datatype in_type, MPI_Comm comm)
{
    struct operation on;
    if (!operation_begin(&on, comm))
        return real.Allgatherv(out, out_count, out_type, in, in_counts, in_places, in_type, comm);
    struct blocks from = one(out, out_count, out_type);
    struct blocks to = {.data = in, .ranks = on.ranks, .type = in_type, .counts = in_counts, .displacements = in_places};
    if (!operation_open(&on, &from, &to))
        return real.Allgatherv(out, out_count, out_type, in, in_counts, in_places, in_type, comm);
    side_pack(&on.out, -1);
    if (out == MPI_IN_PLACE)
        side_pack(&on.in, on.rank);
    int code = real.Allgatherv(GIVEN(on.out, data, out), GIVEN(on.out, count, out_count), GIVEN(on.out, type, out_type),
                               GIVEN(on.in, data, in), GIVEN(on.in, counts, in_counts),
                               GIVEN(on.in, displacements, in_places), GIVEN(on.in, type, in_type), comm);
    if (code == MPI_SUCCESS)
        side_unpack(&on.in, out == MPI_IN_PLACE ? on.rank : -1);
    return operation_end(&on, code);
}
ALSO_AS_PMPI(Allgatherv);

/* Opens both sides of an exchange and packs what leaves: in place, that is what the other side has. */
static int exchange_open(struct operation *on, const struct blocks *from, const struct blocks *to)
{
    int is_in_place = from->data == MPI_IN_PLACE;
    if (!operation_open(on, is_in_place ? &nothing : from, to))
        return 0;
    side_pack(is_in_place ? &on->in : &on->out, -1);
    return 1;
}

int MPI_Alltoall(const void *out, int out_count, MPI_Datatype out_type, void *in, int in_count, MPI_Datatype in_type, MPI_Comm comm)
{
    struct operation on;
    if (!operation_begin(&on, comm))
        return real.Alltoall(out, out_count, out_type, in, in_count, in_type, comm);
    struct blocks from = {.data = (char *)out, .ranks = on.ranks, .count = out_count, .type = out_type};
    struct blocks to = {.data = in, .ranks = on.ranks, .count = in_count, .type = in_type};
    if (!exchange_open(&on, &from, &to))
        return real.Alltoall(out, out_count, out_type, in, in_count, in_type, comm);
    int code = real.Alltoall(GIVEN(on.out, data, out), GIVEN(on.out, count, out_count), GIVEN(on.out, type, out_type),
                             GIVEN(on.in, data, in), GIVEN(on.in, count, in_count), GIVEN(on.in, type, in_type), comm);
    if (code == MPI_SUCCESS)
        side_unpack(&on.in, -1);
    return operation_end(&on, code);
}
ALSO_AS_PMPI(Alltoall);

int MPI_Alltoallv(const void *out, const int *out_counts, const int *out_places, MPI_Datatype out_type, void *in,
                  const int *in_counts, const int *in_places, MPI_Datatype in_type, MPI_Comm comm)
{
    struct operation on;
    if (!operation_begin(&on, comm))
        return real.Alltoallv(out, out_counts, out_places, out_type, in, in_counts, in_places, in_type, comm);
    struct blocks from = {.data = (char *)out, .ranks = on.ranks, .type = out_type, .counts = out_counts,
                          .displacements = out_places};
    struct blocks to = {.data = in, .ranks = on.ranks, .type = in_type, .counts = in_counts, .displacements = in_places};
    if (!exchange_open(&on, &from, &to))
        return real.Alltoallv(out, out_counts, out_places, out_type, in, in_counts, in_places, in_type, comm);
    int code = real.Alltoallv(GIVEN(on.out, data, out), GIVEN(on.out, counts, out_counts),
                              GIVEN(on.out, displacements, out_places), GIVEN(on.out, type, out_type),
                              GIVEN(on.in, data, in), GIVEN(on.in, counts, in_counts),
                              GIVEN(on.in, displacements, in_places), GIVEN(on.in, type, in_type), comm);
    if (code == MPI_SUCCESS)
        side_unpack(&on.in, -1);
    return operation_end(&on, code);
}
ALSO_AS_PMPI(Alltoallv);

int MPI_Alltoallw(const void *out, const int *out_counts, const int *out_places, const MPI_Datatype *out_types, void *in,
                  const int *in_counts, const int *in_places, const MPI_Datatype *in_types, MPI_Comm comm)
{
    struct operation on;
    if (!operation_begin(&on, comm))
        return real.Alltoallw(out, out_counts, out_places, out_types, in, in_counts, in_places, in_types, comm);
    struct blocks from = {.data = (char *)out, .ranks = on.ranks, .counts = out_counts, .types = out_types,
                          .displacements = out_places};
    struct blocks to = {.data = in, .ranks = on.ranks, .counts = in_counts, .types = in_types, .displacements = in_places};
    if (!exchange_open(&on, &from, &to))
        return real.Alltoallw(out, out_counts, out_places, out_types, in, in_counts, in_places, in_types, comm);
    int code = real.Alltoallw(GIVEN(on.out, data, out), GIVEN(on.out, counts, out_counts),
                              GIVEN(on.out, displacements, out_places), GIVEN(on.out, types, out_types),
                              GIVEN(on.in, data, in), GIVEN(on.in, counts, in_counts),
                              GIVEN(on.in, displacements, in_places), GIVEN(on.in, types, in_types), comm);
    if (code == MPI_SUCCESS)
        side_unpack(&on.in, -1);
    return operation_end(&on, code);
}
ALSO_AS_PMPI(Alltoallw);

/* ---- among neighbours ---- */

/* How many neighbours send to us and are sent to, and whether some may not be there: beyond an edge of a grid. */
static int degrees(MPI_Comm comm, int *in, int *out, int *has_edges)
{
    int kind = MPI_UNDEFINED, rank, dimensions, is_weighted;
    *has_edges = 0;
    if (PMPI_Topo_test(comm, &kind) != MPI_SUCCESS)
        return 0;
    if (kind == MPI_CART && PMPI_Cartdim_get(comm, &dimensions) == MPI_SUCCESS) {
        *in = *out = 2 * dimensions;
        *has_edges = 1;
        return 1;
    }
    if (kind == MPI_GRAPH && PMPI_Comm_rank(comm, &rank) == MPI_SUCCESS &&
        PMPI_Graph_neighbors_count(comm, rank, in) == MPI_SUCCESS) {
        *out = *in;
        return 1;
    }
    return kind == MPI_DIST_GRAPH && PMPI_Dist_graph_neighbors_count(comm, in, out, &is_weighted) == MPI_SUCCESS;
}

/* Whether packing any of it gains. Neighbours exchange messages, so each rank decides for itself. */
static int is_worth_it(const struct blocks *all, enum use use)
{
    for (int rank = 0; rank < all->ranks; rank++) {
        MPI_Datatype type = all->types ? all->types[rank] : all->type;
        int count = all->counts ? all->counts[rank] : all->count;
        if (count <= 0 || type_is_plain(type))
            continue;
        struct ready *ready = type_worth(type, count, use);
        ready_release(ready);
        if (ready)
            return 1;
    }
    return 0;
}

/* Opens both sides and packs what leaves. A neighbour that is not there sends nothing, so what is unpacked for it is
 * what was there before. */
static int neighbors_open(struct operation *on, const struct blocks *from, const struct blocks *to, int has_edges)
{
    if ((!is_worth_it(from, TO_READ) && !is_worth_it(to, TO_WRITE)) || !operation_open(on, from, to))
        return 0;
    side_pack(&on->out, -1);
    if (has_edges)
        side_pack(&on->in, -1);
    return 1;
}

static int neighbors_end(struct operation *on, int code)
{
    if (code == MPI_SUCCESS)
        side_unpack(&on->in, -1);
    return operation_end(on, code);
}

#define DEGREES_OR(call)                                                                                 \
    struct operation on = {0};                                                                           \
    int in_degree = 0, out_degree = 0, has_edges = 0;                                                    \
    if (settings.is_off || comm == MPI_COMM_NULL || !degrees(comm, &in_degree, &out_degree, &has_edges)) \
        return call

int MPI_Neighbor_allgather(const void *out, int out_count, MPI_Datatype out_type, void *in, int in_count,
                           MPI_Datatype in_type, MPI_Comm comm)
{
    DEGREES_OR(real.Neighbor_allgather(out, out_count, out_type, in, in_count, in_type, comm));
    struct blocks from = one(out, out_count, out_type);
    struct blocks to = {.data = in, .ranks = in_degree, .count = in_count, .type = in_type};
    if (!neighbors_open(&on, &from, &to, has_edges))
        return real.Neighbor_allgather(out, out_count, out_type, in, in_count, in_type, comm);
    int code = real.Neighbor_allgather(GIVEN(on.out, data, out), GIVEN(on.out, count, out_count),
                                       GIVEN(on.out, type, out_type), GIVEN(on.in, data, in),
                                       GIVEN(on.in, count, in_count), GIVEN(on.in, type, in_type), comm);
    return neighbors_end(&on, code);
}
ALSO_AS_PMPI(Neighbor_allgather);

int MPI_Neighbor_allgatherv(const void *out, int out_count, MPI_Datatype out_type, void *in, const int *in_counts,
                            const int *in_places, MPI_Datatype in_type, MPI_Comm comm)
{
    DEGREES_OR(real.Neighbor_allgatherv(out, out_count, out_type, in, in_counts, in_places, in_type, comm));
    struct blocks from = one(out, out_count, out_type);
    struct blocks to = {.data = in, .ranks = in_degree, .type = in_type, .counts = in_counts, .displacements = in_places};
    if (!neighbors_open(&on, &from, &to, has_edges))
        return real.Neighbor_allgatherv(out, out_count, out_type, in, in_counts, in_places, in_type, comm);
    int code = real.Neighbor_allgatherv(GIVEN(on.out, data, out), GIVEN(on.out, count, out_count),
                                        GIVEN(on.out, type, out_type), GIVEN(on.in, data, in),
                                        GIVEN(on.in, counts, in_counts), GIVEN(on.in, displacements, in_places),
                                        GIVEN(on.in, type, in_type), comm);
    return neighbors_end(&on, code);
}
ALSO_AS_PMPI(Neighbor_allgatherv);

int MPI_Neighbor_alltoall(const void *out, int out_count, MPI_Datatype out_type, void *in, int in_count,
                          MPI_Datatype in_type, MPI_Comm comm)
{
    DEGREES_OR(real.Neighbor_alltoall(out, out_count, out_type, in, in_count, in_type, comm));
    struct blocks from = {.data = (char *)out, .ranks = out_degree, .count = out_count, .type = out_type};
    struct blocks to = {.data = in, .ranks = in_degree, .count = in_count, .type = in_type};
    if (!neighbors_open(&on, &from, &to, has_edges))
        return real.Neighbor_alltoall(out, out_count, out_type, in, in_count, in_type, comm);
    int code = real.Neighbor_alltoall(GIVEN(on.out, data, out), GIVEN(on.out, count, out_count),
                                      GIVEN(on.out, type, out_type), GIVEN(on.in, data, in),
                                      GIVEN(on.in, count, in_count), GIVEN(on.in, type, in_type), comm);
    return neighbors_end(&on, code);
}
ALSO_AS_PMPI(Neighbor_alltoall);

int MPI_Neighbor_alltoallv(const void *out, const int *out_counts, const int *out_places, MPI_Datatype out_type, void *in,
                           const int *in_counts, const int *in_places, MPI_Datatype in_type, MPI_Comm comm)
{
    DEGREES_OR(real.Neighbor_alltoallv(out, out_counts, out_places, out_type, in, in_counts, in_places, in_type, comm));
    struct blocks from = {.data = (char *)out, .ranks = out_degree, .type = out_type, .counts = out_counts,
                          .displacements = out_places};
    struct blocks to = {.data = in, .ranks = in_degree, .type = in_type, .counts = in_counts, .displacements = in_places};
    if (!neighbors_open(&on, &from, &to, has_edges))
        return real.Neighbor_alltoallv(out, out_counts, out_places, out_type, in, in_counts, in_places, in_type, comm);
    int code = real.Neighbor_alltoallv(GIVEN(on.out, data, out), GIVEN(on.out, counts, out_counts),
                                       GIVEN(on.out, displacements, out_places), GIVEN(on.out, type, out_type),
                                       GIVEN(on.in, data, in), GIVEN(on.in, counts, in_counts),
                                       GIVEN(on.in, displacements, in_places), GIVEN(on.in, type, in_type), comm);
    return neighbors_end(&on, code);
}
ALSO_AS_PMPI(Neighbor_alltoallv);

/* Where the blocks of a side lie, as MPI_Neighbor_alltoallw takes it; NULL when there is no memory. */
static MPI_Aint *places_of(const struct side *side)
{
    MPI_Aint *places = calloc((size_t)side->blocks.ranks + 1, sizeof *places);
    for (int rank = 0; places && rank < side->blocks.ranks; rank++)
        places[rank] = side->is_ours ? side->displacements[rank] : side->blocks.places[rank];
    return places;
}

int MPI_Neighbor_alltoallw(const void *out, const int *out_counts, const MPI_Aint *out_places,
                           const MPI_Datatype *out_types, void *in, const int *in_counts, const MPI_Aint *in_places,
                           const MPI_Datatype *in_types, MPI_Comm comm)
{
    DEGREES_OR(real.Neighbor_alltoallw(out, out_counts, out_places, out_types, in, in_counts, in_places, in_types, comm));
    struct blocks from = {.data = (char *)out, .ranks = out_degree, .counts = out_counts, .types = out_types,
                          .places = out_places};
    struct blocks to = {.data = in, .ranks = in_degree, .counts = in_counts, .types = in_types, .places = in_places};
    if (!neighbors_open(&on, &from, &to, has_edges))
        return real.Neighbor_alltoallw(out, out_counts, out_places, out_types, in, in_counts, in_places, in_types, comm);
    MPI_Aint *from_places = places_of(&on.out), *to_places = places_of(&on.in);
    if (!from_places || !to_places)
        PMPI_Abort(MPI_COMM_WORLD, 1);
    int code = real.Neighbor_alltoallw(GIVEN(on.out, data, out), GIVEN(on.out, counts, out_counts), from_places,
                                       GIVEN(on.out, types, out_types), GIVEN(on.in, data, in),
                                       GIVEN(on.in, counts, in_counts), to_places, GIVEN(on.in, types, in_types), comm);
    free(from_places), free(to_places);
    return neighbors_end(&on, code);
}
ALSO_AS_PMPI(Neighbor_alltoallw);

/* What was sent before it has come after it. */
int MPI_Barrier(MPI_Comm comm)
{
    int code = real.Barrier(comm);
    look_after_orphans();
    return code;
}
ALSO_AS_PMPI(Barrier);
