/* Collective operations.
 *
 * MPI libraries cut large collective messages in segments of whole elements, so all ranks must agree on
 * how large an element is. Therefore, in collective operations every derived type becomes bytes, whether that
 * pays or not: contiguous ones where they lie, others packed; those that we cannot describe are packed by MPI
 * itself. MPI's own types of a power of two bytes stay: segments are cut at powers of two. */
#include "sides.h"

static const struct blocks nothing;

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

/* The side of every rank, unless it is the root's own in place. */
struct blocks same_blocks(const void *data, int count, MPI_Datatype type)
{
    return data == MPI_IN_PLACE ? nothing : (struct blocks){.data = (char *)data, .ranks = 1, .count = count, .type = type};
}

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
void side_pack(struct side *side, int only)
{
    struct block block;
    for (int rank = 0; side->buffer && rank < side->blocks.ranks; rank++) {
        char *at = side->buffer + (side->counts ? side->displacements[rank] : (int64_t)rank * side->count);
        if ((only < 0 || only == rank) && block_of(&side->blocks, rank, &block))
            pack_block(&block, at);
    }
}

/* Unpacks all blocks but one (-1: all). */
void side_unpack(struct side *side, int but)
{
    struct block block;
    for (int rank = 0; side->buffer && rank < side->blocks.ranks; rank++) {
        const char *at = side->buffer + (side->counts ? side->displacements[rank] : (int64_t)rank * side->count);
        if (rank != but && block_of(&side->blocks, rank, &block))
            unpack_block(&block, at);
    }
}

/* ---- an operation ---- */

/* 0 when an operation on this communicator is left to MPI: two groups have two sets of ranks. */
int operation_begin(struct operation *operation, MPI_Comm comm)
{
    int is_inter = 1;
    if (settings.is_off || comm == MPI_COMM_NULL || PMPI_Comm_test_inter(comm, &is_inter) != MPI_SUCCESS || is_inter)
        return 0;
    PMPI_Comm_rank(comm, &operation->rank);
    PMPI_Comm_size(comm, &operation->ranks);
    return 1;
}

/* Takes both sides; without `ours` the operation is left to MPI. A side that is not there has no ranks. */
int operation_open(struct operation *operation, const struct blocks *out, const struct blocks *in)
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

int operation_end(struct operation *operation, int code)
{
    side_close(&operation->out);
    side_close(&operation->in);
    look_after_orphans();
    return code;
}
