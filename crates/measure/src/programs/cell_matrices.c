/*
 * Matrices multiplied: block by block through files with one and with two coroutines, and by hand with two buffers for
 * each operand and the same kernel.
 *
 *     cormain: A B C N WORKERS ROUNDS
 *
 * A, B, C are files #U/... of N x N floats, in blocks of 64 x 64 one after another. Worker w has the blocks of C from
 * w/WORKERS on. Each round does all three, in turn: by hand (0), with 1 and with 2 coroutines. A line of the log for each:
 *
 *     matrices WORKER HOW NANOSECONDS
 */
#define _GNU_SOURCE
#include "covey_cell.h"
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define M 64
#define KEPT 100
#define BLOCK (M * M * sizeof(float))

typedef struct Ctx Ctx;
struct Ctx {
    int blkfirst, blklast;
    float *a, *b, *c;
};

static float blocks[6][M * M] __attribute__((aligned(128)));
static char stack[4096] __attribute__((aligned(16)));
static Ctx ctxs[2];
static int afd, bfd, cfd, running;
static char *amap, *bmap, *cmap;
static u64 N, taken[KEPT][3];

static u64
nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* One function for all: a compiler that knows where one caller's operands lie makes another of it, and a faster one. */
static __attribute__((noinline, noclone)) void
MatMult_MxM(float *restrict c, const float *restrict a, const float *restrict b)
{
    int i, j, k;

    for (i = 0; i < M; i += 4)
        for (k = 0; k < M; k++)
            for (j = 0; j < M; j++) {
                c[i * M + j] += a[i * M + k] * b[k * M + j];
                c[(i + 1) * M + j] += a[(i + 1) * M + k] * b[k * M + j];
                c[(i + 2) * M + j] += a[(i + 2) * M + k] * b[k * M + j];
                c[(i + 3) * M + j] += a[(i + 3) * M + k] * b[k * M + j];
            }
}

static void
MatInit_MxM(float *c, float *a, float *b)
{
    memset(c, 0, BLOCK);
    MatMult_MxM(c, a, b);
}

static u64
offset_a(u64 by, u64 idx)
{
    return 4 * (by * M * N + idx * M * M);
}

static u64
offset_b(u64 bx, u64 idx)
{
    return 4 * (bx * M * M + idx * M * N);
}

static void
block_read(Ctx *ctx, u64 by, u64 bx, u64 idx)
{
    spc_pread(afd, ctx->a, BLOCK, offset_a(by, idx));
    spc_pread(bfd, ctx->b, BLOCK, offset_b(bx, idx));
}

static void
mmulcor(void *argument)
{
    Ctx *ctx = argument;
    u64 n = N / M, i, j, k, blkid;

    for (blkid = ctx->blkfirst; blkid < (u64) ctx->blklast; blkid++) {
        i = blkid / n;
        j = blkid % n;
        block_read(ctx, i, j, 0);
        MatInit_MxM(ctx->c, ctx->a, ctx->b);
        for (k = 1; k < n; k++) {
            block_read(ctx, i, j, k);
            MatMult_MxM(ctx->c, ctx->a, ctx->b);
        }
        spc_pwrite(cfd, ctx->c, BLOCK, offset_a(i, j));
    }
    running--;
}

static u64
by_coroutines(int count, int first, int last)
{
    u64 begun;
    int half = count == 2 ? first + (last - first + 1) / 2 : last;

    running = count;
    ctxs[0] = (Ctx){first, half, blocks[0], blocks[1], blocks[2]};
    ctxs[1] = (Ctx){half, last, blocks[3], blocks[4], blocks[5]};
    if (count == 2)
        mkcor(mmulcor, &ctxs[1], stack, sizeof stack);
    /* The first coroutine is one of them: no other waits meanwhile. */
    begun = nanoseconds();
    mmulcor(&ctxs[0]);
    while (running > 0)
        yield();
    return nanoseconds() - begun;
}

/* Two buffers for each operand: the next blocks are copied before the current ones are multiplied. */
static u64
by_hand(int first, int last)
{
    u64 n = N / M, begun = nanoseconds(), i, j, k, at = 0, blkid;
    u64 all = (u64) (last - first) * n;
    float *c = blocks[4];

    memcpy(blocks[0], amap + offset_a(first / n, 0), BLOCK);
    memcpy(blocks[1], bmap + offset_b(first % n, 0), BLOCK);
    for (blkid = first; blkid < (u64) last; blkid++) {
        i = blkid / n;
        j = blkid % n;
        for (k = 0; k < n; k++, at++) {
            float *a = blocks[at % 2 * 2], *b = blocks[at % 2 * 2 + 1];

            if (at + 1 < all) {
                u64 next = first + (at + 1) / n;

                memcpy(blocks[(at + 1) % 2 * 2], amap + offset_a(next / n, (at + 1) % n), BLOCK);
                memcpy(blocks[(at + 1) % 2 * 2 + 1], bmap + offset_b(next % n, (at + 1) % n), BLOCK);
            }
            if (k == 0)
                MatInit_MxM(c, a, b);
            else
                MatMult_MxM(c, a, b);
        }
        memcpy(cmap + offset_a(i, j), c, BLOCK);
    }
    return nanoseconds() - begun;
}

static char *
map(const char *path)
{
    char *memory = mmap(0, N * N * 4, PROT_READ | PROT_WRITE, MAP_SHARED, open(path + 2, O_RDWR), 0);
    u64 at;

    for (at = 0; memory != MAP_FAILED && at < N * N * 4; at += 4096)
        ((volatile char *) memory)[at] += 0;
    return memory;
}

static void
tell(u64 worker, int rounds)
{
    int round, how;

    for (round = 0; round < rounds; round++)
        for (how = 0; how < 3; how++)
            spc_log("matrices %d %d %llu\n", (int) worker, how, (unsigned long long) taken[round][how]);
}

void
cormain(u64 worker, char **argv)
{
    int workers, rounds, round, n, first, last;

    N = strtoull(argv[4], 0, 10);
    workers = atoi(argv[5]);
    rounds = atoi(argv[6]);
    afd = spc_open(argv[1]);
    bfd = spc_open(argv[2]);
    cfd = spc_open(argv[3]);
    amap = map(argv[1]);
    bmap = map(argv[2]);
    cmap = map(argv[3]);
    if (cfd < 0 || amap == MAP_FAILED || bmap == MAP_FAILED || cmap == MAP_FAILED) {
        spc_log("matrices failed\n");
        return;
    }
    n = (N / M) * (N / M);
    first = n * worker / workers;
    last = n * (worker + 1) / workers;
    by_hand(first, last);
    by_coroutines(2, first, last);
    /* The log is a message, and its host then looks for more of them: not between measurements. */
    for (round = 0; round < rounds; round++) {
        taken[round % KEPT][0] = by_hand(first, last);
        taken[round % KEPT][1] = by_coroutines(1, first, last);
        taken[round % KEPT][2] = by_coroutines(2, first, last);
        if (round % KEPT == KEPT - 1 || round == rounds - 1)
            tell(worker, round % KEPT + 1);
    }
}
