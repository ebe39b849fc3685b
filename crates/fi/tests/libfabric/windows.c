/* One-sided operations of MPI: fences, locks, sums, swaps. The first rank says "right". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 100000 };

static int rank, size;

static void check(int is_so, const char *what) {
    if (!is_so) {
        fprintf(stderr, "rank %d: %s\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void fences(MPI_Win window, int *memory) {
    int *other = malloc(COUNT * sizeof(int)), steps[4] = {1, 2, 3, 4};
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int at = 0; at < COUNT; at++) {
        memory[at] = -1;
        other[at] = rank * 1000000 + at;
    }
    MPI_Win_fence(0, window);
    MPI_Put(other, COUNT, MPI_INT, to, 0, COUNT, MPI_INT, window);
    MPI_Win_fence(0, window);
    for (int at = 0; at < COUNT; at++) check(memory[at] == from * 1000000 + at, "other memory was put");
    memset(other, 0, COUNT * sizeof(int));
    MPI_Win_fence(0, window);
    MPI_Get(other, COUNT, MPI_INT, to, 0, COUNT, MPI_INT, window);
    MPI_Win_fence(0, window);
    for (int at = 0; at < COUNT; at++) check(other[at] == rank * 1000000 + at, "other memory was read");
    memset(memory, 0, COUNT * sizeof(int));
    MPI_Win_fence(0, window);
    for (int round = 0; round < 10; round++) MPI_Accumulate(steps, 4, MPI_INT, 0, 0, 4, MPI_INT, MPI_SUM, window);
    MPI_Win_fence(0, window);
    for (int at = 0; rank == 0 && at < 4; at++) check(memory[at] == (at + 1) * 10 * size, "another sum");
    free(other);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void locks(MPI_Win window, int *memory) {
    int one = 1, before, expected = 0, mine = rank + 1, winners;
    for (int round = 0; round < 20; round++) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        MPI_Fetch_and_op(&one, &before, MPI_INT, 0, 10, MPI_SUM, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        check(memory[10] == 20 * size, "an addition was lost");
        MPI_Win_unlock(0, window);
    }
    MPI_Win_lock(MPI_LOCK_SHARED, size - 1, 0, window);
    MPI_Compare_and_swap(&mine, &expected, &before, MPI_INT, size - 1, 20, window);
    MPI_Win_unlock(size - 1, window);
    int has_won = before == 0;
    MPI_Allreduce(&has_won, &winners, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(winners == 1, "not one has won");
}

int main(int argc, char **argv) {
    int *memory;
    MPI_Win window;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    memory = malloc(COUNT * sizeof(int));
    MPI_Win_create(memory, COUNT * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    fences(window, memory);
    locks(window, memory);
    MPI_Win_free(&window);
    free(memory);
    if (rank == 0) printf("right\n");
    MPI_Finalize();
    return 0;
}
