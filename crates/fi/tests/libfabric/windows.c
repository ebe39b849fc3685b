/* One-sided operations of MPI: fences, locks, sums, swaps. The first rank says "right". */
#include "ranks.h"

enum { COUNT = 100000 };

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

/* Some let some others in, for a while: the rank after this one writes here, and this one to the rank before it. */
static void starts(MPI_Win window, int *memory) {
    MPI_Group all, before, after;
    int to = (rank + size - 1) % size, from = (rank + 1) % size, number = 100 + rank;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &to, &before);
    MPI_Group_incl(all, 1, &from, &after);
    for (int round = 0; round < 20; round++) {
        memory[30] = memory[31] = -1;
        MPI_Win_post(after, 0, window);
        MPI_Win_start(before, 0, window);
        MPI_Put(&number, 1, MPI_INT, to, 30, 1, MPI_INT, window);
        MPI_Accumulate(&number, 1, MPI_INT, to, 31, 1, MPI_INT, MPI_REPLACE, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        check(memory[30] == 100 + from && memory[31] == 100 + from, "another has written, or nobody");
    }
    MPI_Group_free(&before);
    MPI_Group_free(&after);
    MPI_Group_free(&all);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Everybody adds to everybody else without that one's help, by atomic operations of several kinds. */
static void all_locked(MPI_Win window, int *memory) {
    int one = 1, bit = 1 << rank, before, sums[4] = {1, 1, 1, 1}, old[4];
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
    memset(memory + 40, 0, 10 * sizeof(int));
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    for (int round = 0; round < 20; round++)
        for (int to = 0; to < size; to++) {
            MPI_Fetch_and_op(&one, &before, MPI_INT, to, 40, MPI_SUM, window);
            MPI_Get_accumulate(sums, 4, MPI_INT, old, 4, MPI_INT, to, 41, 4, MPI_INT, MPI_SUM, window);
            MPI_Accumulate(&bit, 1, MPI_INT, to, 45, 1, MPI_INT, MPI_BOR, window);
            MPI_Accumulate(&round, 1, MPI_INT, to, 46, 1, MPI_INT, MPI_MAX, window);
            MPI_Win_flush(to, window);
        }
    MPI_Win_flush_all(window);
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    for (int at = 40; at < 45; at++) check(memory[at] == 20 * size, "an addition of all was lost");
    check(memory[45] == (1 << size) - 1 && memory[46] == 19, "a bit or a maximum was lost");
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    int *memory;
    MPI_Win window;
    begin(&argc, &argv);
    memory = malloc(COUNT * sizeof(int));
    MPI_Win_create(memory, COUNT * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    fences(window, memory);
    locks(window, memory);
    starts(window, memory);
    all_locked(window, memory);
    MPI_Win_free(&window);
    free(memory);
    return end();
}
