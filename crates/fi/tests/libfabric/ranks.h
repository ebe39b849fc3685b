/* What the programs of MPI share. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void check(int is_so, const char *what) {
    if (!is_so) {
        fprintf(stderr, "rank %d: %s\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Begins, and sees that it is the provider that carries all of it. */
static inline void begin(int *argc, char ***argv) {
    char line[4096];
    int is_there = 0;
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) is_there |= strstr(line, "libcovey") != NULL;
    if (maps) fclose(maps);
    check(is_there, "the provider is not loaded");
}

static inline int end(void) {
    if (rank == 0) printf("right\n");
    MPI_Finalize();
    return 0;
}
