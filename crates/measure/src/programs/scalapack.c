/* Rates of ScaLAPACK: matrices multiplied and systems solved on grids of processes, each case in turn, all of
 * them PASSES times, so that a busy moment does not hit one case alone.
 *
 * Arguments: FILE PASSES SECONDS_MAX LEAST CASE..., where a case is ROUTINE:TYPE:ORDER:BLOCK:ROWS:COLUMNS, such as
 * `gesv:d:2000:64:1:2`. After SECONDS_MAX no case is begun but the first LEAST of them. Rank 0 writes the lines: the
 * time of the slowest process, and the processor time of the one that had least. The last is `end`. */
#include "matrix.h"

#include "finish.h"

void Cblacs_get(int, int, int *), Cblacs_gridinit(int *, char *, int, int), Cblacs_gridexit(int);
void Cblacs_gridinfo(int, int *, int *, int *, int *);
void descinit_(int *, int *, int *, int *, int *, int *, int *, int *, int *, int *);
void psgemm_(), pdgemm_(), pcgemm_(), pzgemm_(), pdgesv_();

enum { WORDS = 9 };

static int rank, ranks;

static void abandon(const char *what)
{
    fprintf(stderr, "cannot measure: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void describe(int *words, int context, const struct grid *grid, long columns)
{
    int rows = grid->order, width = columns, block = grid->block, zero = 0, wrong = 0;
    int lead = rows_of(grid) > 0 ? rows_of(grid) : 1;
    descinit_(words, &rows, &width, &block, &block, &zero, &zero, &context, &lead, &wrong);
    if (wrong)
        abandon("descinit refuses the matrix");
}

/* Everywhere the sum over all processes. */
static void sum(double *all, long count)
{
    MPI_Allreduce(MPI_IN_PLACE, all, (int)count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void times(const void *matrix, struct kind kind, const struct grid *grid, const double *x, double *y, double *sums)
{
    apply(matrix, kind, grid, x, y, sums);
    sum(y, grid->order * kind.parts);
    sum(sums, grid->order);
}

struct taken {
    double wall_s, cpu_s;
};

static struct taken begin(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    struct taken now = { seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID) };
    return now;
}

static struct taken end(struct taken since)
{
    double wall = seconds(CLOCK_MONOTONIC) - since.wall_s, cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - since.cpu_s;
    struct taken all;
    MPI_Allreduce(&wall, &all.wall_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&cpu, &all.cpu_s, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    return all;
}

static struct taken multiply(char type, int context, const struct grid *grid, double *wrong)
{
    struct kind kind = kind_of(type);
    long bytes = rows_of(grid) * columns_of(grid) * bytes_of(kind);
    void *a = memory(bytes), *b = memory(bytes), *c = memory(bytes);
    int words[WORDS], first = 1, order = grid->order;
    describe(words, context, grid, grid->order);
    fill(a, kind, grid, 1);
    fill(b, kind, grid, 2);
    memset(c, 0, bytes);
    double one[2], zero[2];
    put(one, kind, 0, 1), put(one, kind, 1, 0);
    put(zero, kind, 0, 0), put(zero, kind, 1, 0);
    void (*gemm)() = type == 's' ? psgemm_ : type == 'd' ? pdgemm_ : type == 'c' ? pcgemm_ : pzgemm_;
    struct taken taken = begin();
    gemm("N", "N", &order, &order, &order, one, a, &first, &first, words, b, &first, &first, words, zero, c, &first, &first, words);
    taken = end(taken);
    *wrong = residual(times, kind, grid, a, b, c);
    free(a), free(b), free(c);
    return taken;
}

static struct taken solve(int context, const struct grid *grid, double *residual)
{
    struct kind kind = kind_of('d');
    long rows = rows_of(grid), n = grid->order;
    double *a = memory(rows * columns_of(grid) * 8), *b = memory((rows + 1) * 8);
    int *pivots = memory((rows + grid->block) * sizeof *pivots);
    int words[WORDS], right[WORDS], first = 1, order = n, wrong = 0;
    describe(words, context, grid, n);
    describe(right, context, grid, 1);
    fill(a, kind, grid, 1);
    for (long i = 0; i < rows; i++)
        b[i] = element(3, globally(i, grid->block, grid->row, grid->rows), 0, 0);
    struct taken taken = begin();
    pdgesv_(&order, &first, a, &first, &first, words, pivots, b, &first, &first, right, &wrong);
    taken = end(taken);
    /* As HPL has it: the rest of the equations by the size of what went into them, in units of rounding. */
    double *all = memory(3 * n * sizeof *all), *x = all, *ax = x + n, *sums = ax + n;
    for (long i = 0; i < rows && grid->column == 0; i++)
        x[globally(i, grid->block, grid->row, grid->rows)] = b[i];
    sum(x, n);
    fill(a, kind, grid, 1);
    times(a, kind, grid, x, ax, sums);
    for (long i = 0; i < n; i++)
        ax[i] -= element(3, i, 0, 0);
    *residual = greatest(ax, n) / (epsilon(kind) * (greatest(sums, n) * greatest(x, n) + 0.5) * n);
    if (wrong)
        *residual = INFINITY;
    free(all), free(a), free(b), free(pivots);
    return taken;
}

static void measure(int file, const char *what)
{
    char routine[8], type;
    struct grid grid;
    int read = sscanf(what, "%7[^:]:%c:%ld:%ld:%d:%d", routine, &type, &grid.order, &grid.block, &grid.rows, &grid.columns);
    if (read != 6 || grid.order < 1 || grid.block < 1 || grid.rows * grid.columns != ranks)
        abandon("the case does not fit the ranks");
    int context, rows, columns;
    Cblacs_get(-1, 0, &context);
    Cblacs_gridinit(&context, "Row", grid.rows, grid.columns);
    Cblacs_gridinfo(context, &rows, &columns, &grid.row, &grid.column);
    double residual;
    int is_solved = strcmp(routine, "gesv") == 0;
    struct taken taken = is_solved ? solve(context, &grid, &residual) : multiply(type, context, &grid, &residual);
    Cblacs_gridexit(context);
    if (file >= 0)
        record(file, routine, type, &grid, taken.wall_s, taken.cpu_s, residual);
}

int main(int count, char **words)
{
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (count < 6)
        abandon("too few arguments");
    int file = rank == 0 ? begin_records(words[1]) : -1;
    /* Connections are made and libraries wake up. */
    char first[64];
    snprintf(first, sizeof first, "gemm:d:256:32:1:%d", ranks);
    measure(-1, first);
    double since = seconds(CLOCK_MONOTONIC);
    for (int pass = 0; pass < atoi(words[2]); pass++)
        for (int i = 5; i < count; i++) {
            int is_first = pass == 0 && i - 5 < atoi(words[4]);
            int goes_on = is_first || seconds(CLOCK_MONOTONIC) - since < atof(words[3]);
            MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
            if (goes_on)
                measure(file, words[i]);
        }
    if (file >= 0)
        dprintf(file, "end\n");
    finish();
    return 0;
}
