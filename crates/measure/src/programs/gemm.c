/* The rate of one core: matrices multiplied by the BLAS that the loader finds, again and again.
 *
 * Arguments: FILE SECONDS ORDER TYPES, such as `rates 0.5 768 sdcz`. Each type has SECONDS; one multiplication is made
 * at least, after a first that is not counted. */
#include "matrix.h"

void sgemm_(), dgemm_(), cgemm_(), zgemm_();

static void multiply(char type, int order, const void *a, const void *b, void *c)
{
    struct kind kind = kind_of(type);
    double one[2], zero[2];
    put(one, kind, 0, 1), put(one, kind, 1, 0);
    put(zero, kind, 0, 0), put(zero, kind, 1, 0);
    void (*gemm)() = type == 's' ? sgemm_ : type == 'd' ? dgemm_ : type == 'c' ? cgemm_ : zgemm_;
    gemm("N", "N", &order, &order, &order, one, a, &order, b, &order, zero, c, &order, (size_t)1, (size_t)1);
}

static void measure(int file, char type, long order, double seconds_max)
{
    struct kind kind = kind_of(type);
    struct grid grid = { order, order, 1, 1, 0, 0 };
    long bytes = order * order * bytes_of(kind);
    void *a = memory(bytes), *b = memory(bytes), *c = memory(bytes);
    fill(a, kind, &grid, 1);
    fill(b, kind, &grid, 2);
    multiply(type, order, a, b, c);
    double wrong = residual(apply, kind, &grid, a, b, c), begin = seconds(CLOCK_MONOTONIC);
    do {
        double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
        multiply(type, order, a, b, c);
        wall = seconds(CLOCK_MONOTONIC) - wall, cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        record(file, "gemm", type, &grid, wall, cpu, wrong);
    } while (seconds(CLOCK_MONOTONIC) - begin < seconds_max);
    free(a), free(b), free(c);
}

int main(int count, char **words)
{
    if (count < 5) {
        fprintf(stderr, "gemm: too few arguments\n");
        return 3;
    }
    int file = begin_records(words[1]);
    for (const char *type = words[4]; *type; type++)
        measure(file, *type, atol(words[3]), atof(words[2]));
    return 0;
}
