/* What programs do with MPI: messages of all lengths, collectives, probes, errors, and files where a path is given. The
 * first rank says "right". */
#include "ranks.h"
#define MOST (1 << 20)

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

/* Found, claimed and received as one step each: by its own handle nobody else gets a message. */
static void claimed_probes(void) {
    enum { EACH = 20 };
    MPI_Message message;
    MPI_Status status;
    int count, is_there;
    if (rank > 0)
        for (int at = 0; at < EACH; at++) {
            int bytes = at % 3 == 2 ? MOST / 2 : at * 100 + 4;
            memset(a, rank + at, bytes);
            MPI_Send(a, bytes, MPI_CHAR, 0, 40 + at % 2, MPI_COMM_WORLD);
        }
    int *taken = calloc(2 * size, sizeof(int));
    for (int at = 0; rank == 0 && at < EACH * (size - 1); at++) {
        if (at % 2) {
            MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
        } else {
            do MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, &message, &status);
            while (!is_there);
        }
        MPI_Get_count(&status, MPI_CHAR, &count);
        int from = status.MPI_SOURCE, odd = status.MPI_TAG - 40;
        MPI_Mrecv(b, count, MPI_CHAR, &message, &status);
        int number = 2 * taken[2 * from + odd]++ + odd;
        check(count == (number % 3 == 2 ? MOST / 2 : number * 100 + 4), "another message was claimed");
        check(b[0] == (char)(from + number) && b[count - 1] == b[0], "another message came");
    }
    MPI_Iprobe(MPI_ANY_SOURCE, 999, MPI_COMM_WORLD, &is_there, &status);
    check(!is_there, "a message is there that nobody has sent");
    free(taken);
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

/* Communicators that come and go, of all ranks and of some. */
static void communicators(void) {
    for (int round = 0; round < 40; round++) {
        MPI_Comm other, half;
        int sum, one = 1;
        MPI_Comm_dup(MPI_COMM_WORLD, &other);
        MPI_Barrier(other);
        MPI_Comm_split(other, rank % 2, -rank, &half);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, half);
        check(sum == (size + 1 - rank % 2) / 2, "another half");
        MPI_Comm_free(&half);
        MPI_Comm_free(&other);
    }
}

/* Blocks of all ranks in one file, in turn, by a view; each reads what its neighbour has written. */
static void files(const char *path) {
    enum { BLOCK = 1000, BLOCKS = 50 };
    MPI_File file;
    MPI_Datatype mine;
    MPI_Status status;
    int count, next = (rank + 1) % size;
    check(!MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), "no file");
    MPI_Type_vector(BLOCKS, BLOCK, BLOCK * size, MPI_INT, &mine);
    MPI_Type_commit(&mine);
    int *out = malloc(BLOCK * BLOCKS * sizeof(int)), *in = calloc(BLOCK * BLOCKS, sizeof(int));
    for (int at = 0; at < BLOCK * BLOCKS; at++) out[at] = rank * 1000000 + at;
    MPI_File_set_view(file, (MPI_Offset)rank * BLOCK * sizeof(int), MPI_INT, mine, "native", MPI_INFO_NULL);
    check(!MPI_File_write_at_all(file, 0, out, BLOCK * BLOCKS, MPI_INT, &status), "nothing was written");
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    MPI_File_set_view(file, (MPI_Offset)next * BLOCK * sizeof(int), MPI_INT, mine, "native", MPI_INFO_NULL);
    check(!MPI_File_read_at_all(file, 0, in, BLOCK * BLOCKS, MPI_INT, &status), "nothing was read");
    MPI_Get_count(&status, MPI_INT, &count);
    check(count == BLOCK * BLOCKS, "less was read");
    for (int at = 0; at < BLOCK * BLOCKS; at++) check(in[at] == next * 1000000 + at, "another number was read");
    MPI_File_close(&file);
    MPI_Type_free(&mine);
    free(out);
    free(in);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    a = malloc(MOST);
    b = malloc(MOST);
    ping_pong();
    collectives();
    MPI_Request own;
    MPI_Irecv(b, 100, MPI_CHAR, rank, 99, MPI_COMM_WORLD, &own);
    MPI_Send(a, 100, MPI_CHAR, rank, 99, MPI_COMM_WORLD);
    MPI_Wait(&own, MPI_STATUS_IGNORE);
    probes();
    claimed_probes();
    a_storm_from_anybody();
    communicators();
    if (argc > 1) files(argv[1]);
    errors();
    return end();
}
