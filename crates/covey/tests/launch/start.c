/* What a program wants of whoever starts it: the right size, ranks that find each other, one file that all of them
 * write. `start`: reduce and exchange. `start file PATH`: each rank writes its record, all read all of them.
 * `start abort RANK CODE`: that rank aborts while the others wait for it. `start exit RANK CODE`: it leaves
 * without a word. `start over LIBRARY`: reduce and exchange, by a process that has loaded the library. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 99);
}

static void exchange(int rank, int size) {
    enum { BYTES = 1 << 20, ROUNDS = 20 };
    char *out = malloc(BYTES), *in = malloc(BYTES);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int round = 0; round < ROUNDS; round++) {
        memset(out, (rank + round) & 0x7f, BYTES);
        MPI_Sendrecv(out, BYTES, MPI_CHAR, right, 0, in, BYTES, MPI_CHAR, left, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (int at = 0; at < BYTES; at++)
            if (in[at] != ((left + round) & 0x7f)) fail("a wrong byte came");
    }
    free(out);
    free(in);
}

static void share(const char *path, int rank, int size) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    int record = rank * 7 + 1;
    if (fd < 0 || pwrite(fd, &record, sizeof record, rank * sizeof record) != sizeof record)
        fail("cannot write the shared file");
    MPI_Barrier(MPI_COMM_WORLD);
    for (int other = 0; other < size; other++)
        if (pread(fd, &record, sizeof record, other * sizeof record) != sizeof record ||
            record != other * 7 + 1)
            fail("the shared file lacks a record");
    close(fd);
}

static void check_loaded(const char *library) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, library) != NULL;
    if (!found) fail("the library is not loaded");
    fclose(maps);
}

int main(int argc, char **argv) {
    int rank, size, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 3) {
        /* All have begun, and the others wait outside of the library: it does not notice who is missing. */
        MPI_Barrier(MPI_COMM_WORLD);
        usleep(200000);
        if (rank != atoi(argv[2])) for (;;) pause();
        if (!strcmp(argv[1], "abort")) MPI_Abort(MPI_COMM_WORLD, atoi(argv[3]));
        _exit(atoi(argv[3]));
    }
    if (argc > 2 && !strcmp(argv[1], "over")) check_loaded(argv[2]);
    if (argc > 2 && !strcmp(argv[1], "file")) share(argv[2], rank, size);
    MPI_Comm here;
    int local = 0, number = rank + 1;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &local);
    MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    exchange(rank, size);
    printf("size %d sum %d\n", size, sum);
    MPI_Comm_free(&here);
    MPI_Finalize();
    return 0;
}
