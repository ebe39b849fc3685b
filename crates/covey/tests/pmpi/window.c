/* The transposition of a matrix of floats in a window: got and put by columns, with a type that only the
 * origin knows; every element is checked. usage: window N [TIMES]
 * With TIMES it measures one operation and its flush: the shortest time, the best tenth and the median, in
 * microseconds. With DIRECT the memory is reached by calling libcovey itself. */
#define _GNU_SOURCE
#include <mpi.h>
#ifdef DIRECT
#include <covey.h>
#include <sys/uio.h>
#include <unistd.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, n, times, wrong;
static size_t elements;
static float *mine, *theirs;
static MPI_Datatype columns;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#ifdef DIRECT
static covey_plan *plan;
static covey_target *target;
static float *scratch, *far;
static int pid;

static void describe(void)
{
    covey_layout *element, *column, *all;
    if (covey_layout_element(COVEY_F32, &element) || covey_layout_vector((uint64_t)n, 1, n, element, &column) ||
        covey_layout_hvector((uint64_t)n, 1, sizeof(float), column, &all) || covey_plan_new(all, 1, &plan) ||
        covey_target_new(all, 1, &target))
        abort();
    scratch = malloc(elements * sizeof *scratch);
}

static void meet(void)
{
    int own = (int)getpid();
    MPI_Sendrecv(&own, 1, MPI_INT, 1 - rank, 0, &pid, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&theirs, sizeof theirs, MPI_BYTE, 1 - rank, 0, &far, sizeof far, MPI_BYTE, 1 - rank, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void move(int puts, MPI_Win window)
{
    size_t bytes = elements * sizeof(float);
    struct iovec here = {scratch, bytes}, there = {far, bytes};
    (void)window;
    if (puts) {
        covey_unpack(target, mine, bytes, 0, covey_memory(scratch, bytes));
        if (process_vm_writev(pid, &here, 1, &there, 1, 0) != (ssize_t)bytes)
            abort();
    } else {
        if (process_vm_readv(pid, &here, 1, &there, 1, 0) != (ssize_t)bytes)
            abort();
        covey_pack(plan, covey_memory(scratch, bytes), 0, mine, bytes);
    }
}
#else
#define describe()
#define meet()

static void move(int puts, MPI_Win window)
{
    int count = (int)elements;
    if (puts)
        MPI_Put(mine, count, MPI_FLOAT, 1, 0, 1, columns, window);
    else
        MPI_Get(mine, count, MPI_FLOAT, 1, 0, 1, columns, window);
    MPI_Win_flush(1, window);
}
#endif

static int is_transposed(const float *matrix)
{
    int right = 1;
    for (int i = 0; i < n && right; i++)
        for (int j = 0; j < n; j++)
            right &= matrix[(size_t)i * n + j] == (float)((size_t)j * n + i);
    return right;
}

static void measure(const char *flavour, int puts, MPI_Win window)
{
    double *took = calloc((size_t)times + 1, sizeof *took);
    for (size_t i = 0; i < elements; i++) {
        mine[i] = puts && rank == 0 ? (float)i : -1.0f;
        theirs[i] = !puts && rank == 1 ? (float)i : -1.0f;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Win_lock_all(0, window);
        for (int time = 0; time <= times; time++) {
            double begun = MPI_Wtime();
            move(puts, window);
            took[time] = (MPI_Wtime() - begun) * 1e6;
        }
        MPI_Win_unlock_all(window);
        if (!puts)
            wrong |= !is_transposed(mine);
        /* The first one is not counted. */
        qsort(took + 1, (size_t)times, sizeof *took, compare);
        if (times > 0)
            printf("%s-%s %d %.2f %.2f %.2f\n", flavour, puts ? "put" : "get", n, took[1], took[1 + times / 10],
                   took[1 + times / 2]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1 && puts) {
        MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window);
        wrong |= !is_transposed(theirs);
        MPI_Win_unlock(1, window);
    }
    free(took);
}

int main(int argc, char **argv)
{
    MPI_Datatype column;
    MPI_Win window;
    n = argc > 1 ? atoi(argv[1]) : 100, times = argc > 2 ? atoi(argv[2]) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    elements = (size_t)n * (size_t)n;
    MPI_Aint bytes = (MPI_Aint)(elements * sizeof(float));
    mine = malloc((size_t)bytes);
    MPI_Type_vector(n, 1, n, MPI_FLOAT, &column);
    MPI_Type_create_hvector(n, 1, sizeof(float), column, &columns);
    MPI_Type_commit(&columns);
    MPI_Type_free(&column);
    describe();
    for (int allocates = 0; allocates < 2; allocates++) {
        if (allocates) {
            MPI_Win_allocate(bytes, sizeof(float), MPI_INFO_NULL, MPI_COMM_WORLD, &theirs, &window);
        } else {
            theirs = malloc((size_t)bytes);
            MPI_Win_create(theirs, bytes, sizeof(float), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        }
        meet();
        for (int puts = 0; puts < 2; puts++)
            measure(allocates ? "allocated" : "created", puts, window);
        MPI_Win_free(&window);
        if (!allocates)
            free(theirs);
    }
    int all = 0;
    MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_LOR, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s\n", all ? "wrong" : "right");
    MPI_Type_free(&columns);
    free(mine);
    MPI_Finalize();
    return wrong;
}
