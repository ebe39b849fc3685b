/* Columns of a matrix, written and read back by the ranks of an MPI program, independently:
 *
 *   columns FILE ROWS BYTES
 *   columns FILE box ROUNDS
 *
 * Each rank has one column of ROWS pieces of BYTES bytes, or a quarter of an array of 64 x 256 x 128 bytes: a box
 * whose rows are 64 bytes, ROUNDS times, in arrays one after another. With COVEY_COLUMNS=list the pieces go by
 * covey_writex and covey_readx of the preload library, else through an MPI-IO view. Prints one line:
 * MB/s of writing and of reading. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "covey-preload.h"

static int rank, ranks;

#define MUST(call) ((call) ? (void)0 : (fprintf(stderr, "rank %d: %s failed\n", rank, #call), (void)MPI_Abort(MPI_COMM_WORLD, 1)))

typedef ssize_t (*list_call)(int, const struct iovec *, size_t, const struct covey_xtvec *, size_t);

static char byte_at(long at) { return (char)(at * 31 + at / 251); }

static void by_lists(const char *file, long rows, long bytes, char *mine, double *write_s, double *read_s)
{
    list_call writex = (list_call)dlsym(RTLD_DEFAULT, "covey_writex");
    list_call readx = (list_call)dlsym(RTLD_DEFAULT, "covey_readx");
    MUST(writex && readx);
    struct covey_xtvec *places = malloc(rows * sizeof *places);
    for (long row = 0; row < rows; row++)
        places[row] = (struct covey_xtvec){(uint64_t)(row * ranks + rank) * bytes, bytes};
    struct iovec all = {mine, rows * bytes};
    int fd = open(file, O_CREAT | O_RDWR, 0644);
    MUST(fd >= 0);
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    MUST(writex(fd, &all, 1, places, rows) == rows * bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    *write_s = MPI_Wtime() - begun;
    memset(mine, 0, rows * bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    begun = MPI_Wtime();
    MUST(readx(fd, &all, 1, places, rows) == rows * bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    *read_s = MPI_Wtime() - begun;
    close(fd);
    free(places);
}

/* Writes and reads a rank's part of a file through a view of `type` at `disp`. */
static void through(const char *file, MPI_Datatype type, MPI_Offset disp, long bytes, char *mine, double *write_s,
                    double *read_s)
{
    MPI_File fh;
    MUST(MPI_File_open(MPI_COMM_WORLD, (char *)file, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &fh) == MPI_SUCCESS);
    MUST(MPI_File_set_view(fh, disp, MPI_BYTE, type, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    MUST(MPI_File_write_at(fh, 0, mine, bytes, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    *write_s = MPI_Wtime() - begun;
    memset(mine, 0, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    begun = MPI_Wtime();
    MUST(MPI_File_read_at(fh, 0, mine, bytes, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    *read_s = MPI_Wtime() - begun;
    MPI_File_close(&fh);
}

static void by_view(const char *file, long rows, long bytes, char *mine, double *write_s, double *read_s)
{
    MPI_Datatype vector, column;
    MPI_Type_vector(rows, bytes, bytes * ranks, MPI_BYTE, &vector);
    MPI_Type_create_resized(vector, 0, rows * bytes * ranks, &column);
    MPI_Type_commit(&column);
    through(file, column, rank * bytes, rows * bytes, mine, write_s, read_s);
}

/* Ranks share the second and the third dimension. */
enum { DEEP = 64, HIGH = 256, WIDE = 128, ROW = WIDE / 2, BOX = DEEP * HIGH / 2 * ROW };

static long box_at(long i)
{
    long round = i / BOX, plane = i % BOX / (HIGH / 2 * ROW), row = i % (HIGH / 2 * ROW) / ROW;
    return ((round * DEEP + plane) * HIGH + rank / 2 % 2 * HIGH / 2 + row) * WIDE + rank % 2 * ROW + i % ROW;
}

static int boxes(const char *file, long rounds)
{
    int sizes[3] = {DEEP, HIGH, WIDE}, parts[3] = {DEEP, HIGH / 2, ROW}, starts[3] = {0, rank / 2 % 2 * HIGH / 2, rank % 2 * ROW};
    MPI_Datatype box;
    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_BYTE, &box);
    MPI_Type_commit(&box);
    char *mine = malloc(rounds * BOX);
    for (long i = 0; i < rounds * BOX; i++)
        mine[i] = byte_at(box_at(i));
    double write_s, read_s;
    through(file, box, 0, rounds * BOX, mine, &write_s, &read_s);
    for (long i = 0; i < rounds * BOX; i++)
        MUST(mine[i] == byte_at(box_at(i)));
    double megabytes = rounds * BOX * ranks / 1e6;
    if (rank == 0)
        printf("%.1f %.1f\n", megabytes / write_s, megabytes / read_s);
    MPI_Finalize();
    return 0;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MUST(argc >= 4);
    if (!strcmp(argv[2], "box"))
        return boxes(argv[1], atol(argv[3]));
    long rows = atol(argv[2]), bytes = atol(argv[3]);
    char *mine = malloc(rows * bytes);
    for (long i = 0; i < rows * bytes; i++)
        mine[i] = byte_at((i / bytes * ranks + rank) * bytes + i % bytes);
    double write_s, read_s;
    const char *how = getenv("COVEY_COLUMNS");
    (how && !strcmp(how, "list") ? by_lists : by_view)(argv[1], rows, bytes, mine, &write_s, &read_s);
    for (long i = 0; i < rows * bytes; i++)
        MUST(mine[i] == byte_at((i / bytes * ranks + rank) * bytes + i % bytes));
    double megabytes = rows * bytes * ranks / 1e6;
    if (rank == 0)
        printf("%.1f %.1f\n", megabytes / write_s, megabytes / read_s);
    MPI_Finalize();
    return 0;
}
