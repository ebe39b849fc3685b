/* Collective operations among the neighbours of a topology: sides.c has how their sides are packed. */
#include "sides.h"

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
    struct blocks from = same_blocks(out, out_count, out_type);
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
    struct blocks from = same_blocks(out, out_count, out_type);
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
