/* What programs do with MPI: messages of all lengths, collectives, probes, errors. The first rank says "right". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST (1 << 20)

static int rank, size;

static void check(int is_so, const char *what) {
    if (!is_so) {
        fprintf(stderr, "rank %d: %s\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static char *a, *b;

static void ping_pong(void) {
    for (int bytes = 0; bytes <= MOST; bytes = bytes ? bytes * 4 : 1) {
        for (int round = 0; round < 4; round++) {
            memset(a, bytes % 251 + round, bytes);
            if (rank == 0) {
                MPI_Send(a, bytes, MPI_CHAR, size - 1, 7, MPI_COMM_WORLD);
                MPI_Recv(b, bytes, MPI_CHAR, size - 1, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                check(!memcmp(a, b, bytes), "other bytes came back");
            } else if (rank == size - 1) {
                MPI_Recv(b, bytes, MPI_CHAR, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(b, bytes, MPI_CHAR, 0, 8, MPI_COMM_WORLD);
            }
        }
    }
}

static void collectives(void) {
    int mine = rank + 1, sum;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(sum == size * (size + 1) / 2, "another sum");
    for (int count = 1; count <= 1 << 14; count *= 16) {
        int *out = malloc(sizeof(int) * count * size), *in = malloc(sizeof(int) * count * size);
        for (int at = 0; at < count * size; at++) out[at] = rank * 1000000 + at;
        MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD);
        for (int from = 0; from < size; from++)
            for (int at = 0; at < count; at++)
                check(in[from * count + at] == from * 1000000 + rank * count + at, "another element");
        free(out);
        free(in);
    }
}

static void probes(void) {
    MPI_Status status;
    int count;
    if (rank > 0) {
        for (int at = 0; at < 20; at++)
            MPI_Send(a, (at * 250 + 1) * 3, MPI_CHAR, 0, at * 250 + 1, MPI_COMM_WORLD);
    }
    for (int at = 0; rank == 0 && at < (size - 1) * 20; at++) {
        MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_CHAR, &count);
        check(count == status.MPI_TAG * 3, "a probe told another length");
        MPI_Recv(b, count, MPI_CHAR, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void a_storm_from_anybody(void) {
    enum { EACH = 500 };
    if (rank > 0)
        for (int at = 0; at < EACH; at++) MPI_Send(&at, 1, MPI_INT, 0, 21, MPI_COMM_WORLD);
    int *next = calloc(size, sizeof(int));
    for (int at = 0; rank == 0 && at < EACH * (size - 1); at++) {
        MPI_Status status;
        int value;
        MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 21, MPI_COMM_WORLD, &status);
        check(value == next[status.MPI_SOURCE]++, "a message overtook another");
    }
    free(next);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void errors(void) {
    MPI_Request request;
    MPI_Status status;
    int was_cancelled, class = 0;
    MPI_Irecv(b, 10, MPI_CHAR, rank, 1234, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &was_cancelled);
    check(was_cancelled, "a receive that nothing matches was not cancelled");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 1) MPI_Send(a, 1000, MPI_CHAR, 0, 5, MPI_COMM_WORLD);
    if (rank == 0) {
        int error = MPI_Recv(b, 10, MPI_CHAR, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Error_class(error, &class);
        check(class == MPI_ERR_TRUNCATE, "a message that is too long was taken");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    a = malloc(MOST);
    b = malloc(MOST);
    ping_pong();
    collectives();
    MPI_Request own;
    MPI_Irecv(b, 100, MPI_CHAR, rank, 99, MPI_COMM_WORLD, &own);
    MPI_Send(a, 100, MPI_CHAR, rank, 99, MPI_COMM_WORLD);
    MPI_Wait(&own, MPI_STATUS_IGNORE);
    probes();
    a_storm_from_anybody();
    errors();
    for (int round = 0; round < 20; round++) {
        MPI_Comm other;
        MPI_Comm_dup(MPI_COMM_WORLD, &other);
        MPI_Barrier(other);
        MPI_Comm_free(&other);
    }
    if (rank == 0) printf("right\n");
    MPI_Finalize();
    return 0;
}
