/* Four kernels that communicate as four of the NAS Parallel Benchmarks do. They are not those: sizes, algorithms and
 * verification are our own, and small.
 *
 *     ep   hardly at all: pairs of random numbers are counted, and ten counts are added up at the end
 *     cg   many short messages: a sparse system is solved by conjugate gradients; each step gathers a vector and
 *          makes two sums
 *     ft   all to all, long: a plane of complex numbers is transformed and transposed, forwards and back
 *     is   all to all, irregular: integers are sorted by ranges, one range for each process
 *
 * Arguments: FILE SECONDS PAIRS UNKNOWNS EDGE KEYS: each kernel has about SECONDS; the sizes are of all processes
 * together. EDGE is a power of two. What must divide by the number of processes is rounded up. Each result is checked. */
#include "timed.h"
#include <math.h>

/* The same for the same number, whoever asks. */
static uint64_t hash(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* From 0 to 1. */
static double random_at(uint64_t index)
{
    return (double)(hash(index + 0x9e3779b97f4a7c15u) >> 11) * 0x1p-53;
}

static long rounded_up(long count, long to)
{
    return (count + to - 1) / to * to;
}

/* ---- ep ---- */

enum { RINGS = 10 };

struct pairs {
    long count;
    double rings[RINGS];
};

static void count_pairs(const struct team *team, void *what)
{
    struct pairs *pairs = what;
    double mine[RINGS] = { 0 };
    for (long i = team->rank; i < pairs->count; i += team->ranks) {
        double x = 2 * random_at(2 * i) - 1, y = 2 * random_at(2 * i + 1) - 1, t = x * x + y * y;
        if (t > 1 || t == 0)
            continue;
        double by = sqrt(-2 * log(t) / t), far = fmax(fabs(x * by), fabs(y * by));
        mine[far < RINGS - 1 ? (int)far : RINGS - 1]++;
    }
    MPI_Allreduce(mine, pairs->rings, RINGS, MPI_DOUBLE, MPI_SUM, team->all);
}

static int are_counted(const struct team *team, const void *what)
{
    const struct pairs *pairs = what;
    double all = 0;
    (void)team;
    for (int i = 0; i < RINGS; i++)
        all += pairs->rings[i];
    /* Those in the circle. */
    return fabs(all / pairs->count - acos(-1) / 4) < 0.02;
}

/* ---- cg ---- */

enum { STRIDES = 6, STEPS = 25 };

/* Each unknown is joined to 2 * STRIDES others, some near and some far. The diagonal outweighs them, so the matrix is
 * positive definite. */
struct system {
    long all, mine, first;
    long strides[STRIDES];
    double *whole, *x, *r, *p, *q;
    double rest;
};

static double right_side(long row)
{
    return random_at(row) - 0.5;
}

/* q = A p for this process's rows; p is gathered from everybody. */
static void apply(const struct team *team, struct system *s, const double *p, double *q)
{
    MPI_Allgather(p, (int)s->mine, MPI_DOUBLE, s->whole, (int)s->mine, MPI_DOUBLE, team->all);
    for (long i = 0; i < s->mine; i++) {
        long row = s->first + i;
        double sum = (2 * STRIDES + 1) * s->whole[row];
        for (int k = 0; k < STRIDES; k++) {
            long over = row + s->strides[k], under = row - s->strides[k];
            sum -= s->whole[over < s->all ? over : over - s->all] + s->whole[under < 0 ? under + s->all : under];
        }
        q[i] = sum;
    }
}

static double product(const struct team *team, const struct system *s, const double *a, const double *b)
{
    double mine = 0, sum;
    for (long i = 0; i < s->mine; i++)
        mine += a[i] * b[i];
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, team->all);
    return sum;
}

static void solve(const struct team *team, void *what)
{
    struct system *s = what;
    for (long i = 0; i < s->mine; i++)
        s->x[i] = 0, s->r[i] = s->p[i] = right_side(s->first + i);
    double rest = product(team, s, s->r, s->r);
    for (int step = 0; step < STEPS; step++) {
        apply(team, s, s->p, s->q);
        double by = rest / product(team, s, s->p, s->q);
        for (long i = 0; i < s->mine; i++)
            s->x[i] += by * s->p[i], s->r[i] -= by * s->q[i];
        double next = product(team, s, s->r, s->r);
        for (long i = 0; i < s->mine; i++)
            s->p[i] = s->r[i] + next / rest * s->p[i];
        rest = next;
    }
}

static int is_solved(const struct team *team, const void *what)
{
    struct system *s = (struct system *)what;
    apply(team, s, s->x, s->q);
    for (long i = 0; i < s->mine; i++)
        s->r[i] = right_side(s->first + i), s->q[i] -= s->r[i];
    double missed = product(team, s, s->q, s->q), size = product(team, s, s->r, s->r);
    return missed <= 1e-6 * size;
}

/* ---- ft ---- */

struct plane {
    long edge, rows; /* This process has so many rows. */
    double *at, *packed, *kept; /* Complex numbers, row by row. */
};

/* Radix 2, in place; `sign` -1 forwards, 1 back. */
static void transform(double *at, long count, int sign)
{
    for (long i = 1, j = 0; i < count; i++) {
        long bit = count >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j)
            for (int part = 0; part < 2; part++) {
                double other = at[2 * i + part];
                at[2 * i + part] = at[2 * j + part];
                at[2 * j + part] = other;
            }
    }
    for (long span = 2; span <= count; span <<= 1) {
        double angle = sign * 2 * acos(-1) / span, step_re = cos(angle), step_im = sin(angle);
        for (long from = 0; from < count; from += span) {
            double re = 1, im = 0;
            for (long k = 0; k < span / 2; k++) {
                double *even = at + 2 * (from + k), *odd = even + span;
                double odd_re = odd[0] * re - odd[1] * im, odd_im = odd[0] * im + odd[1] * re;
                odd[0] = even[0] - odd_re, odd[1] = even[1] - odd_im;
                even[0] += odd_re, even[1] += odd_im;
                double next = re * step_re - im * step_im;
                im = re * step_im + im * step_re, re = next;
            }
        }
    }
}

/* Rows become columns: what is for one process lies together, goes there, and is put in its place. */
static void transpose(const struct team *team, struct plane *plane)
{
    long rows = plane->rows, edge = plane->edge;
    for (int to = 0; to < team->ranks; to++)
        for (long i = 0; i < rows; i++)
            for (long j = 0; j < rows; j++)
                memcpy(plane->packed + 2 * ((to * rows + j) * rows + i), plane->at + 2 * (i * edge + to * rows + j), 16);
    int each = (int)(2 * rows * rows);
    MPI_Alltoall(plane->packed, each, MPI_DOUBLE, plane->at, each, MPI_DOUBLE, team->all);
    memcpy(plane->packed, plane->at, 16 * rows * edge);
    for (int from = 0; from < team->ranks; from++)
        for (long j = 0; j < rows; j++)
            memcpy(plane->at + 2 * (j * edge + from * rows), plane->packed + 2 * (from * rows + j) * rows, 16 * rows);
}

static void there_and_back(const struct team *team, void *what)
{
    struct plane *plane = what;
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int side = 0; side < 2; side++) {
            for (long i = 0; i < plane->rows; i++)
                transform(plane->at + 2 * i * plane->edge, plane->edge, sign);
            if (side == 0)
                transpose(team, plane);
        }
        /* It lies on its side now; the way back lays it as it was. */
    }
    double by = 1.0 / ((double)plane->edge * plane->edge);
    for (long i = 0; i < 2 * plane->rows * plane->edge; i++)
        plane->at[i] *= by;
}

static int is_as_it_was(const struct team *team, const void *what)
{
    const struct plane *plane = what;
    (void)team;
    for (long i = 0; i < 2 * plane->rows * plane->edge; i++)
        if (!(fabs(plane->at[i] - plane->kept[i]) < 1e-9))
            return 0;
    return 1;
}

/* ---- is ---- */

enum { BUCKETS = 1024, KEY_BITS = 20 };

struct keys {
    long mine; /* So many are this process's before. */
    long got, room; /* And after. */
    uint32_t *keys, *by_bucket, *sorted;
    int *send, *receive, *send_at, *receive_at;
    long *count;
};

/* Which process has a bucket: each as many keys as is possible. */
static void deal(const struct team *team, const long *all, long total, int *owner)
{
    long before = 0;
    for (int bucket = 0; bucket < BUCKETS; bucket++) {
        long to = before * team->ranks / (total > 0 ? total : 1);
        owner[bucket] = to < team->ranks ? (int)to : team->ranks - 1;
        before += all[bucket];
    }
}

static void sort_keys(const struct team *team, void *what)
{
    struct keys *k = what;
    long here[BUCKETS] = { 0 }, all[BUCKETS], place[BUCKETS], total = 0;
    int owner[BUCKETS];
    for (long i = 0; i < k->mine; i++)
        here[k->keys[i] >> (KEY_BITS - 10)]++;
    MPI_Allreduce(here, all, BUCKETS, MPI_LONG, MPI_SUM, team->all);
    for (int bucket = 0; bucket < BUCKETS; bucket++)
        place[bucket] = bucket ? place[bucket - 1] + here[bucket - 1] : 0, total += all[bucket];
    deal(team, all, total, owner);
    memset(k->send, 0, team->ranks * sizeof(int));
    for (int bucket = 0; bucket < BUCKETS; bucket++)
        k->send[owner[bucket]] += (int)here[bucket];
    for (long i = 0; i < k->mine; i++)
        k->by_bucket[place[k->keys[i] >> (KEY_BITS - 10)]++] = k->keys[i];
    MPI_Alltoall(k->send, 1, MPI_INT, k->receive, 1, MPI_INT, team->all);
    k->got = 0;
    for (int rank = 0; rank < team->ranks; rank++) {
        k->send_at[rank] = rank ? k->send_at[rank - 1] + k->send[rank - 1] : 0;
        k->receive_at[rank] = (int)k->got;
        k->got += k->receive[rank];
    }
    if (k->got > k->room)
        abandon("the keys are too uneven");
    MPI_Alltoallv(k->by_bucket, k->send, k->send_at, MPI_UINT32_T, k->sorted, k->receive, k->receive_at, MPI_UINT32_T, team->all);
    memset(k->count, 0, sizeof(long) << KEY_BITS);
    for (long i = 0; i < k->got; i++)
        k->count[k->sorted[i]]++;
    for (long key = 0, i = 0; key < 1L << KEY_BITS; key++)
        for (long n = k->count[key]; n > 0; n--)
            k->sorted[i++] = (uint32_t)key;
}

static int are_sorted(const struct team *team, const void *what)
{
    const struct keys *k = what;
    long ends[2] = { k->got > 0 ? (long)k->sorted[0] : -1, k->got > 0 ? (long)k->sorted[k->got - 1] : -1 };
    long *all = memory(2 * team->ranks * sizeof(long)), last = -1, total, before = k->mine, there = k->got;
    MPI_Allgather(ends, 2, MPI_LONG, all, 2, MPI_LONG, team->all);
    MPI_Allreduce(&there, &total, 1, MPI_LONG, MPI_SUM, team->all);
    MPI_Allreduce(MPI_IN_PLACE, &before, 1, MPI_LONG, MPI_SUM, team->all);
    int is_right = total == before;
    for (int rank = 0; rank < team->ranks; rank++) {
        if (all[2 * rank] < 0)
            continue;
        is_right = is_right && all[2 * rank] > last;
        last = all[2 * rank + 1];
    }
    free(all);
    for (long i = 1; i < k->got; i++)
        is_right = is_right && k->sorted[i - 1] <= k->sorted[i];
    return is_right;
}

/* ---- all of them ---- */

typedef int judge(const struct team *team, const void *what);

static void run(const struct team *team, const char *name, long bytes, act *call, judge *is_right, void *what, double seconds)
{
    call(team, what);
    int right = is_right(team, what);
    timed(team, name, bytes, right, call, what, seconds);
}

static void run_ep(const struct team *team, long count, double seconds)
{
    struct pairs pairs = { count, { 0 } };
    run(team, "ep", 16 * count, count_pairs, are_counted, &pairs, seconds);
}

static void run_cg(const struct team *team, long count, double seconds)
{
    struct system s = { .all = rounded_up(count, team->ranks) };
    s.mine = s.all / team->ranks, s.first = team->rank * s.mine;
    for (int k = 0; k < STRIDES; k++)
        s.strides[k] = 1 + (long)(random_at(1000 + k) * (s.all - 1) / (1 << 2 * (STRIDES - 1 - k)));
    s.whole = memory(8 * s.all);
    s.x = memory(8 * s.mine), s.r = memory(8 * s.mine), s.p = memory(8 * s.mine), s.q = memory(8 * s.mine);
    run(team, "cg", 8 * s.all, solve, is_solved, &s, seconds);
    free(s.whole), free(s.x), free(s.r), free(s.p), free(s.q);
}

static void run_ft(const struct team *team, long edge, double seconds)
{
    struct plane plane = { edge, edge / team->ranks, 0, 0, 0 };
    long bytes = 16 * plane.rows * edge;
    plane.at = memory(bytes), plane.packed = memory(bytes), plane.kept = memory(bytes);
    for (long i = 0; i < 2 * plane.rows * edge; i++)
        plane.at[i] = plane.kept[i] = random_at(i + 2 * plane.rows * edge * team->rank) - 0.5;
    run(team, "ft", 16 * edge * edge, there_and_back, is_as_it_was, &plane, seconds);
    free(plane.at), free(plane.packed), free(plane.kept);
}

static void run_is(const struct team *team, long count, double seconds)
{
    struct keys k = { .mine = rounded_up(count, team->ranks) / team->ranks };
    k.room = 2 * k.mine + BUCKETS;
    k.keys = memory(4 * k.mine), k.by_bucket = memory(4 * k.mine), k.sorted = memory(4 * k.room);
    k.send = memory(4 * sizeof(int) * team->ranks), k.receive = k.send + team->ranks;
    k.send_at = k.receive + team->ranks, k.receive_at = k.send_at + team->ranks;
    k.count = memory(sizeof(long) << KEY_BITS);
    for (long i = 0; i < k.mine; i++)
        k.keys[i] = hash(i + k.mine * team->rank) >> (64 - KEY_BITS);
    run(team, "is", 4 * k.mine * team->ranks, sort_keys, are_sorted, &k, seconds);
    free(k.keys), free(k.by_bucket), free(k.sorted), free(k.send), free(k.count);
}

int main(int count, char **words)
{
    struct team team = { MPI_COMM_WORLD, 0, 0 };
    MPI_Init(&count, &words);
    MPI_Comm_rank(team.all, &team.rank);
    MPI_Comm_size(team.all, &team.ranks);
    if (count < 7)
        abandon("too few arguments");
    double seconds = atof(words[2]);
    long edge = atol(words[5]);
    if (edge < team.ranks || edge & (edge - 1) || edge % team.ranks)
        abandon("the edge of the plane does not divide by the processes");
    begin_records(words[1]);
    run_ep(&team, atol(words[3]), seconds);
    run_cg(&team, atol(words[4]), seconds);
    run_ft(&team, edge, seconds);
    run_is(&team, atol(words[6]), seconds);
    end_all();
    return 0;
}
