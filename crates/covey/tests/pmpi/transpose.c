/* The transposition of a matrix of floats: sent by columns and received as it lies in memory, and the
 * other way round; every element is checked. usage: transpose N [TIMES]
 * With TIMES it measures: the shortest time, the best tenth and the median, in microseconds.
 * With DIRECT it packs by calling libcovey itself; with CONTIGUOUS nothing is scattered. */
#include <mpi.h>
#ifdef DIRECT
#include <covey.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#ifdef DIRECT
static covey_plan *plan;
static covey_target *target;
static float *packed;

static void describe(int n)
{
    covey_layout *element, *column, *columns;
    if (covey_layout_element(COVEY_F32, &element) || covey_layout_vector((uint64_t)n, 1, n, element, &column) ||
        covey_layout_hvector((uint64_t)n, 1, sizeof(float), column, &columns) ||
        covey_plan_new(columns, 1, &plan) || covey_target_new(columns, 1, &target))
        abort();
    packed = malloc((size_t)n * (size_t)n * sizeof *packed);
}

static void give(const float *matrix, int count, MPI_Datatype type, int to, size_t bytes)
{
    if (type != MPI_FLOAT) {
        covey_pack(plan, covey_memory(matrix, bytes), 0, packed, bytes);
        matrix = packed, count = (int)bytes, type = MPI_BYTE;
    }
    MPI_Send(matrix, count, type, to, 0, MPI_COMM_WORLD);
}

static void take(float *matrix, int count, MPI_Datatype type, int from, size_t bytes)
{
    if (type == MPI_FLOAT) {
        MPI_Recv(matrix, count, type, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(packed, (int)bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        covey_unpack(target, packed, bytes, 0, covey_memory(matrix, bytes));
    }
}
#else
#define describe(n) (void)(n)
#define give(matrix, count, type, to, bytes) MPI_Send(matrix, count, type, to, 0, MPI_COMM_WORLD)
#define take(matrix, count, type, from, bytes) MPI_Recv(matrix, count, type, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
#endif

int main(int argc, char **argv)
{
    int rank, n = argc > 1 ? atoi(argv[1]) : 100, times = argc > 2 ? atoi(argv[2]) : 0, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    size_t elements = (size_t)n * (size_t)n;
    float *matrix = malloc(elements * sizeof *matrix);
    MPI_Datatype column, columns;
    MPI_Type_vector(n, 1, n, MPI_FLOAT, &column);
    MPI_Type_create_hvector(n, 1, sizeof(float), column, &columns);
    MPI_Type_commit(&columns);
    MPI_Type_free(&column);
    describe(n);
    for (int way = 0; way < 2 && rank < 2; way++) {
        /* By columns, or as it lies. */
        int scattered_here = way == rank;
#ifdef CONTIGUOUS
        scattered_here = 0;
#endif
        MPI_Datatype type = scattered_here ? columns : MPI_FLOAT;
        int count = scattered_here ? 1 : (int)elements;
        for (size_t i = 0; i < elements; i++)
            matrix[i] = rank == 0 ? (float)i : -1.0f;
        double *took = calloc((size_t)times + 1, sizeof *took);
        for (int time = 0; time <= times; time++) {
            double begun = MPI_Wtime();
            if (rank == 0) {
                give(matrix, count, type, 1, elements * sizeof(float));
                MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                take(matrix, count, type, 0, elements * sizeof(float));
                MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
            }
            took[time] = (MPI_Wtime() - begun) * 1e6;
        }
        for (int i = 0; i < n && rank == 1; i++)
            for (int j = 0; j < n; j++)
#ifdef CONTIGUOUS
                wrong += matrix[(size_t)i * n + j] != (float)((size_t)i * n + j);
#else
                wrong += matrix[(size_t)i * n + j] != (float)((size_t)j * n + i);
#endif
        if (rank == 0 && times > 0) {
            /* The first one is not counted. */
            qsort(took + 1, (size_t)times, sizeof *took, compare);
            printf("%s %d %.2f %.2f %.2f\n", way == 0 ? "scattered-contiguous" : "contiguous-scattered", n,
                   took[1], took[1 + times / 10], took[1 + times / 2]);
        }
        free(took);
    }
    if (rank == 1)
        printf("%s\n", wrong ? "wrong" : "right");
    MPI_Type_free(&columns);
    free(matrix);
    MPI_Finalize();
    return wrong != 0;
}
