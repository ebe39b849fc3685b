/* Halos of a grid and lists of neighbours with derived types, and receives of matched probes: a line for each, with a
 * number of all that the rank then has. Beyond an edge of the grid nothing may be touched. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { SIDE = 64, BYTES = SIDE * SIDE * 8 };

static unsigned char from[BYTES], to[BYTES];
static int rank, ranks;

static void fill(void)
{
    for (int i = 0; i < BYTES; i++) {
        from[i] = (unsigned char)(i * 31 + rank * 7 + i / 251);
        to[i] = (unsigned char)(i * 3 + rank);
    }
}

static void tell(const char *what, const char *where)
{
    uint64_t sum = 1469598103934665603u;
    for (int i = 0; i < BYTES; i++)
        sum = (sum ^ to[i]) * 1099511628211u;
    printf("%d %s %s %016llx\n", rank, what, where, (unsigned long long)sum);
    fill();
}

/* Every way. */
static void neighbors(MPI_Comm comm, const char *where)
{
    MPI_Datatype column, short_column, types[8];
    int counts[8], places[8];
    MPI_Aint bytes[8];
    /* A column of the matrix, of which the next one lies 8 bytes further, and half of one. */
    MPI_Type_vector(SIDE, 1, SIDE, MPI_DOUBLE, &short_column);
    MPI_Type_create_resized(short_column, 0, 8, &column);
    MPI_Type_free(&short_column);
    MPI_Type_vector(SIDE / 2, 1, SIDE, MPI_DOUBLE, &short_column);
    MPI_Type_commit(&column), MPI_Type_commit(&short_column);
    for (int i = 0; i < 8; i++) {
        types[i] = short_column;
        counts[i] = 1, places[i] = 7 - i, bytes[i] = i * 24;
    }
    MPI_Neighbor_allgather(from, 1, column, to, 1, column, comm);
    tell("allgather", where);
    MPI_Neighbor_allgatherv(from, 1, column, to, counts, places, column, comm);
    tell("allgatherv", where);
    MPI_Neighbor_alltoall(from, 1, column, to, SIDE, MPI_DOUBLE, comm);
    tell("alltoall", where);
    MPI_Neighbor_alltoallv(from, counts, places, column, to, counts, places, column, comm);
    tell("alltoallv", where);
    MPI_Neighbor_alltoallw(from, counts, bytes, types, to, counts, bytes, types, comm);
    tell("alltoallw", where);
    MPI_Type_free(&column), MPI_Type_free(&short_column);
}

static void matched_probes(void)
{
    MPI_Datatype column;
    MPI_Message found;
    MPI_Request sent, received;
    MPI_Status status;
    int next = (rank + 1) % ranks, count = 0;
    MPI_Type_vector(SIDE, 1, SIDE, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    MPI_Isend(from, SIDE, MPI_DOUBLE, next, 1, MPI_COMM_WORLD, &sent);
    MPI_Mprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &found, &status);
    MPI_Mrecv(to, 1, column, &found, &status);
    MPI_Get_count(&status, column, &count);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    tell(count == 1 ? "mrecv" : "mrecv, wrong", "world");
    MPI_Isend(from, 1, column, next, 2, MPI_COMM_WORLD, &sent);
    MPI_Mprobe(MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    MPI_Imrecv(to, 1, column, &found, &received);
    MPI_Wait(&received, MPI_STATUS_IGNORE);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    tell("imrecv", "world");
    found = MPI_MESSAGE_NO_PROC;
    MPI_Mrecv(to, 1, column, &found, &status);
    MPI_Get_count(&status, column, &count);
    tell(count == 0 ? "mrecv of nobody" : "mrecv of nobody, wrong", "world");
    MPI_Type_free(&column);
}

int main(int argc, char **argv)
{
    MPI_Comm comm;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    fill();
    for (int is_ring = 0; is_ring < 2; is_ring++) {
        int sizes[2] = {0, 0}, around[2] = {is_ring, 0};
        MPI_Dims_create(ranks, 2, sizes);
        MPI_Cart_create(MPI_COMM_WORLD, 2, sizes, around, 0, &comm);
        neighbors(comm, is_ring ? "ring" : "grid");
        MPI_Comm_free(&comm);
    }
    int before = (rank + ranks - 1) % ranks, after[2] = {(rank + 1) % ranks, rank};
    int sources[2] = {before, rank};
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources, MPI_UNWEIGHTED, 2, after, MPI_UNWEIGHTED, MPI_INFO_NULL,
                                   0, &comm);
    neighbors(comm, "list");
    MPI_Comm_free(&comm);
    matched_probes();
    MPI_Finalize();
    return 0;
}
