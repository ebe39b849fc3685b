/* Collective operations to and from a root, and from all to all: sides.c has how their sides are packed. */
#include "sides.h"

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

int MPI_Gather(const void *out, int out_count, MPI_Datatype out_type, void *in, int in_count, MPI_Datatype in_type,
               int root, MPI_Comm comm)
{
    struct operation on;
    if (!operation_begin(&on, comm))
        return real.Gather(out, out_count, out_type, in, in_count, in_type, root, comm);
    struct blocks from = same_blocks(out, out_count, out_type), to = nothing;
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
    struct blocks from = same_blocks(out, out_count, out_type), to = nothing;
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
    struct blocks from = nothing, to = same_blocks(in, in_count, in_type);
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
    struct blocks from = nothing, to = same_blocks(in, in_count, in_type);
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
    struct blocks from = same_blocks(out, out_count, out_type);
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
    struct blocks from = same_blocks(out, out_count, out_type);
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
/* What was sent before it has come after it. */
int MPI_Barrier(MPI_Comm comm)
{
    int code = real.Barrier(comm);
    look_after_orphans();
    return code;
}
ALSO_AS_PMPI(Barrier);
