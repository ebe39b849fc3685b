/* What programs that multiply and solve have in common: clocks, and matrices whose elements follow from their
 * indices, so that each process makes its own part and a result can be checked without having been kept.
 *
 * A matrix is dealt out in square blocks to a grid of processes, as ScaLAPACK has it; one process alone has all
 * of it. Each measurement is one line of a file:
 *
 *     ROUTINE TYPE ORDER BLOCK ROWS COLUMNS WALL_NS CPU_NS RESIDUAL
 *
 * and the first says where the BLAS came from: `blas PATH`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct kind {
    int parts; /* Numbers of an element: 2 of a complex one. */
    int is_single;
};

struct grid {
    long order, block;
    int rows, columns; /* Of processes. */
    int row, column;   /* This one's place. */
};

static double seconds(clockid_t which)
{
    struct timespec now;
    clock_gettime(which, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static struct kind kind_of(char name)
{
    struct kind kind = { name == 'c' || name == 'z' ? 2 : 1, name == 's' || name == 'c' };
    return kind;
}

static long bytes_of(struct kind kind)
{
    return kind.parts * (kind.is_single ? 4 : 8);
}

static double epsilon(struct kind kind)
{
    return kind.is_single ? 0x1p-24 : 0x1p-53;
}

/* How many of the rows (or columns) are this process's. */
static long share(long order, long block, int place, int places)
{
    long whole = order / block, rest = order % block;
    long mine = whole / places * block;
    if (place < whole % places)
        return mine + block;
    return place == whole % places ? mine + rest : mine;
}

static long rows_of(const struct grid *grid)
{
    return share(grid->order, grid->block, grid->row, grid->rows);
}

static long columns_of(const struct grid *grid)
{
    return share(grid->order, grid->block, grid->column, grid->columns);
}

static long globally(long local, long block, int place, int places)
{
    return (local / block * places + place) * block + local % block;
}

static double number(const void *all, struct kind kind, long index)
{
    return kind.is_single ? ((const float *)all)[index] : ((const double *)all)[index];
}

static void put(void *all, struct kind kind, long index, double value)
{
    if (kind.is_single)
        ((float *)all)[index] = (float)value;
    else
        ((double *)all)[index] = value;
}

/* Between -0.5 and 0.5, and exact as a float. */
static double element(uint64_t seed, long row, long column, int part)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + (uint64_t)row * 0xbf58476d1ce4e5b9u + (uint64_t)column * 0x94d049bb133111ebu + part;
    x = (x ^ (x >> 31)) * 0xd6e8feb86659fd93u;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return (double)(x >> 44) * 0x1p-20 - 0.5;
}

static void fill(void *matrix, struct kind kind, const struct grid *grid, uint64_t seed)
{
    long rows = rows_of(grid), columns = columns_of(grid), at = 0;
    for (long j = 0; j < columns; j++) {
        long column = globally(j, grid->block, grid->column, grid->columns);
        for (long i = 0; i < rows; i++) {
            long row = globally(i, grid->block, grid->row, grid->rows);
            for (int part = 0; part < kind.parts; part++)
                put(matrix, kind, at++, element(seed, row, column, part));
        }
    }
}

/* This process's part of matrix times x, added to y, and its part of the sums of absolute values by rows. */
static void apply(const void *matrix, struct kind kind, const struct grid *grid, const double *x, double *y, double *sums)
{
    long rows = rows_of(grid), columns = columns_of(grid), at = 0;
    for (long j = 0; j < columns; j++) {
        const double *by = x + kind.parts * globally(j, grid->block, grid->column, grid->columns);
        for (long i = 0; i < rows; i++, at += kind.parts) {
            long row = globally(i, grid->block, grid->row, grid->rows);
            double re = number(matrix, kind, at);
            if (kind.parts == 1) {
                y[row] += re * by[0];
                sums[row] += fabs(re);
                continue;
            }
            double im = number(matrix, kind, at + 1);
            y[2 * row] += re * by[0] - im * by[1];
            y[2 * row + 1] += re * by[1] + im * by[0];
            sums[row] += fabs(re) + fabs(im);
        }
    }
}

static double greatest(const double *all, long count)
{
    double most = 0;
    for (long i = 0; i < count; i++)
        if (!(fabs(all[i]) <= most))
            most = fabs(all[i]); /* Also what is no number. */
    return most;
}

static void *memory(size_t bytes)
{
    void *found = calloc(1, bytes + 64);
    if (!found) {
        fprintf(stderr, "cannot have %zu bytes of memory\n", bytes);
        exit(3);
    }
    return found;
}

/* Adds a matrix times x to y, and the sums of its rows' absolute values to the last. */
typedef void multiplier(const void *, struct kind, const struct grid *, const double *, double *, double *);

/* How far c x is from a (b x), in units of rounding. */
static double residual(multiplier *times, struct kind kind, const struct grid *grid, const void *a, const void *b, const void *c)
{
    long count = grid->order * kind.parts;
    double *all = memory((4 * count + grid->order) * sizeof *all);
    double *x = all, *bx = x + count, *abx = bx + count, *cx = abx + count, *sums = cx + count;
    for (long i = 0; i < count; i++)
        x[i] = element(4, i, 0, 0);
    times(b, kind, grid, x, bx, sums);
    times(a, kind, grid, bx, abx, sums);
    times(c, kind, grid, x, cx, sums);
    double size = greatest(abx, count);
    for (long i = 0; i < count; i++)
        cx[i] -= abx[i];
    double found = greatest(cx, count) / (epsilon(kind) * sqrt(grid->order) * size);
    free(all);
    return found;
}

static int begin_records(const char *name)
{
    int file = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) {
        perror(name);
        exit(3);
    }
    Dl_info where;
    void *found = dlsym(RTLD_DEFAULT, "dgemm_");
    dprintf(file, "blas %s\n", found && dladdr(found, &where) && where.dli_fname ? where.dli_fname : "unknown");
    return file;
}

static void record(int file, const char *routine, char type, const struct grid *grid, double wall_s, double cpu_s, double residual)
{
    dprintf(file, "%s %c %ld %ld %d %d %.0f %.0f %g\n", routine, type, grid->order, grid->block, grid->rows, grid->columns,
            wall_s * 1e9, cpu_s * 1e9, residual);
}
