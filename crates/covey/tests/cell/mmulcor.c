/* The paper's matrix multiplication, what the scan has cut mended: that it compiles and multiplies. */
#include "covey_cell.h"

#define N 256
#define M 64

typedef struct Ctx Ctx;
struct Ctx {
    int blkfirst, blklast;
    float *a, *b, *c;
};

static int afd, bfd, cfd;
static int shift = 2, mask = 3;
static float blocks[2][3][M * M] __attribute__((aligned(128)));
static char stacks[2][4096];
static Ctx ctxs[2];

static void
MatMult_MxM(float *c, float *a, float *b)
{
    int i, j, k;

    for (i = 0; i < M; i++)
        for (k = 0; k < M; k++)
            for (j = 0; j < M; j++)
                c[i * M + j] += a[i * M + k] * b[k * M + j];
}

static void
MatInit_MxM(float *c, float *a, float *b)
{
    int i;

    for (i = 0; i < M * M; i++)
        c[i] = 0;
    MatMult_MxM(c, a, b);
}

static int
block_read(Ctx *ctx, unsigned int by, unsigned int bx, unsigned int idx)
{
    int sz;
    u64 offa, offb;

    offa = 4*(by*M*N + idx*M*M);
    offb = 4*(bx*M*M + idx*M*N);
    sz = sizeof(float) * M * M;
    spc_pread(afd, (u8 *) ctx->a, sz, offa);
    spc_pread(bfd, (u8 *) ctx->b, sz, offb);
    return 0;
}

static int
block_write(Ctx *ctx, unsigned int by, unsigned int bx)
{
    int sz;
    u64 offc;

    sz = sizeof(float) * M * M;
    offc = 4 * (by*M*N + bx*M*M);
    spc_pwrite(cfd, (u8 *) ctx->c, sz, offc);
    return 0;
}

static void
mmulcor(void *a)
{
    int i, j, k, blkid;
    Ctx *ctx;

    ctx = a;
    for(blkid = ctx->blkfirst; blkid < ctx->blklast; blkid++) {
        i = (blkid >> shift) & mask;
        j = (blkid) & mask;
        block_read(ctx, i, j, 0);
        MatInit_MxM(ctx->c, ctx->a, ctx->b);
        for(k = 1; k < (N/M); k++) {
            block_read(ctx, i, j, k);
            MatMult_MxM(ctx->c, ctx->a, ctx->b);
        }
        block_write(ctx, i, j);
    }
}

void
cormain(u64 spuid, char **argv, char **env)
{
    int i;

    afd = spc_open(argv[1], Oread);
    bfd = spc_open(argv[2], Oread);
    cfd = spc_open(argv[3]);
    for (i = 0; i < 2; i++) {
        ctxs[i].a = blocks[i][0];
        ctxs[i].b = blocks[i][1];
        ctxs[i].c = blocks[i][2];
        ctxs[i].blkfirst = i * 8;
        ctxs[i].blklast = i * 8 + 8;
        mkcor(mmulcor, &ctxs[i], stacks[i], sizeof stacks[i]);
    }
}
