/* What two ranks make of messages, streams, transpositions and remote reads through MPI, in thousands of short
 * batches, with the time that a bare cache line takes between the same two ranks measured in between.
 *
 * Arguments: FILE MEMORY CPU0 CPU1 PASSES SLICE_S WHAT...
 *
 * MEMORY is a file that both ranks map. All of WHAT is gone through PASSES times, SLICE_S of time each. WHAT is
 *
 *   pingpong-BYTES        half a round trip of a message
 *   stream-BYTES          a message among 64 that are under way, all from and to one place
 *   halves-BYTES          as pingpong, without MPI: each rank copies a half by process_vm_readv or process_vm_writev, both at
 *                         once, and a word each way says so
 *   send-gather-N         a matrix of N x N floats, by columns at the sender, contiguous at the receiver
 *   send-scatter-N        the same, contiguous at the sender, by columns at the receiver
 *   send-plain-N          as many bytes, contiguous on both sides
 *   get-gather-N          MPI_Get of the remote matrix by columns, contiguous here; the window made of any memory
 *   get-scatter-N         the same, contiguous there, by columns here
 *   get-plain-N
 *   owned-get-gather-N... as get, in a window that MPI allocated
 *
 * Rank 0 writes a line to FILE for each slice: what, operations, CPU time of both ranks in ns, how many times of
 * a cache line follow, these, then the time of an operation in each batch, all in ns. The last line is `end`. What was
 * transposed is compared element by element before each slice, and after it if that is not slow; a difference ends it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS_MAX = 20, OUTSTANDING = 64, BATCHES_PER_CHUNK = 25, LINE_BATCHES = 5, SAMPLES_MAX = 20000, LINES_MAX = 4000 };
static const double BATCH_NS = 100e3, SLOW_NS = 0.3e9;

/* Words of MEMORY, in units of 16 longs: two cache lines. */
enum { PING = 0, PONG = 16, CPU_OF_PEER = 32, BAD = 48, BEGUN = 64, WROTE = 80, READ = 96, WORDS = 112 };
static atomic_long *words;

enum kind { LINE, PINGPONG, STREAM, HALVES, GATHER, SCATTER, PLAIN, GET_GATHER, GET_SCATTER, GET_PLAIN, CHECK, END };

struct what {
    const char *name;
    enum kind kind;
    long size;
    int is_owned; /* The window is of MPI's memory. */
    MPI_Win window;
    float *exposed;
    MPI_Datatype columns;
};

static int rank;
/* Where the other rank's block lies, and the process that it is in. */
static struct { long pid, block; } other;
static char *block;
static float *matrix, *flat;

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static long cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1000000000L + used.tv_nsec;
}

static void fail(const char *why, const char *what)
{
    fprintf(stderr, "pairs: error: %s: %s\n", what, why);
    MPI_Abort(MPI_COMM_WORLD, 3);
    exit(3);
}

/* Element of the matrix that `owner` has, in row-major order. */
static float element(long index, int owner)
{
    return (float)index + (owner ? 0.5f : 0.0f);
}

static void fill(float *of, long n, int owner)
{
    for (long i = 0; i < n * n; i++)
        of[i] = element(i, owner);
}

/* Both ways are transpositions: element (i, j) of one side is element (j, i) of the other. */
static int is_transposed(const float *of, long n, int owner)
{
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++)
            if (of[j * n + i] != element(i * n + j, owner))
                return 0;
    return 1;
}

static int is_same(const float *of, long n, int owner)
{
    for (long i = 0; i < n * n; i++)
        if (of[i] != element(i, owner))
            return 0;
    return 1;
}

static void send(void *from, int count, MPI_Datatype type)
{
    MPI_Send(from, count, type, 1 - rank, 1, MPI_COMM_WORLD);
}

static void receive(void *to, int count, MPI_Datatype type)
{
    MPI_Recv(to, count, type, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void exchange(void *from, int from_count, MPI_Datatype from_type, void *to, int to_count, MPI_Datatype to_type)
{
    if (rank == 0) {
        send(from, from_count, from_type);
        receive(to, to_count, to_type);
    } else {
        receive(to, to_count, to_type);
        send(from, from_count, from_type);
    }
}

static void stream(long bytes, long windows)
{
    MPI_Request all[OUTSTANDING];
    for (long w = 0; w < windows; w++) {
        for (int i = 0; i < OUTSTANDING; i++)
            if (rank == 0)
                MPI_Isend(block, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &all[i]);
            else
                MPI_Irecv(block, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &all[i]);
        MPI_Waitall(OUTSTANDING, all, MPI_STATUSES_IGNORE);
    }
    if (rank == 0)
        receive(block, 0, MPI_BYTE);
    else
        send(block, 0, MPI_BYTE);
}

static void lines(long base, long rounds)
{
    for (long i = base + 1; i <= base + rounds; i++)
        if (rank == 0) {
            atomic_store_explicit(&words[PING], i, memory_order_release);
            while (atomic_load_explicit(&words[PONG], memory_order_acquire) != i)
                ;
        } else {
            while (atomic_load_explicit(&words[PING], memory_order_acquire) != i)
                ;
            atomic_store_explicit(&words[PONG], i, memory_order_release);
        }
}

static void copy_half(long bytes, int is_sender)
{
    long half = bytes / 2 & ~4095L, at = is_sender ? half : 0, size = is_sender ? bytes - half : half;
    struct iovec here = { block + at, size }, there = { (char *)other.block + at, size };
    long done = is_sender ? process_vm_writev(other.pid, &here, 1, &there, 1, 0)
                          : process_vm_readv(other.pid, &here, 1, &there, 1, 0);
    if (done != size)
        fail("the kernel does not copy between these processes", "halves");
}

static void halves(long bytes, long rounds)
{
    static long message;
    for (long i = 0; i < 2 * rounds; i++) {
        int is_sender = rank == i % 2;
        message++;
        if (is_sender)
            atomic_store_explicit(&words[BEGUN], message, memory_order_release);
        while (atomic_load_explicit(&words[BEGUN], memory_order_acquire) != message)
            ;
        copy_half(bytes, is_sender);
        atomic_store_explicit(&words[is_sender ? WROTE : READ], message, memory_order_release);
        while (atomic_load_explicit(&words[is_sender ? READ : WROTE], memory_order_acquire) != message)
            ;
    }
}

/* One rank's half of some rounds. */
static void rounds_of(const struct what *what, enum kind kind, long base, long rounds)
{
    long n = what->size, all = n * n;
    if (kind == LINE)
        return lines(base, rounds);
    if (kind == STREAM)
        return stream(n, rounds);
    if (kind == HALVES)
        return halves(n, rounds);
    for (long i = 0; i < rounds; i++)
        switch (kind) {
        case PINGPONG:
            exchange(block, n, MPI_BYTE, block, n, MPI_BYTE);
            break;
        case GATHER:
            exchange(matrix, 1, what->columns, flat, all, MPI_FLOAT);
            break;
        case SCATTER:
            exchange(flat, all, MPI_FLOAT, matrix, 1, what->columns);
            break;
        case PLAIN:
            exchange(matrix, all, MPI_FLOAT, flat, all, MPI_FLOAT);
            break;
        case GET_GATHER:
        case GET_SCATTER:
        case GET_PLAIN:
            /* The other rank makes progress while it waits for what comes next. */
            if (rank != 0)
                return;
            if (kind == GET_GATHER)
                MPI_Get(flat, all, MPI_FLOAT, 1, 0, 1, what->columns, what->window);
            else if (kind == GET_SCATTER)
                MPI_Get(matrix, 1, what->columns, 1, 0, all, MPI_FLOAT, what->window);
            else
                MPI_Get(flat, all, MPI_FLOAT, 1, 0, all, MPI_FLOAT, what->window);
            MPI_Win_flush(1, what->window);
            break;
        default:
            return;
        }
}

/* Operations in one round. */
static long operations(enum kind kind)
{
    switch (kind) {
    case STREAM:
        return OUTSTANDING;
    case GET_GATHER:
    case GET_SCATTER:
    case GET_PLAIN:
        return 1;
    default:
        return 2;
    }
}

/* Sets both sides up, moves once, and compares. */
static void check(const struct what *what)
{
    long n = what->size;
    int is_get = what->kind >= GET_GATHER && what->kind <= GET_PLAIN, is_good = 1;
    if (what->kind < GATHER || what->kind > GET_PLAIN)
        return;
    int is_to_matrix = what->kind == SCATTER || what->kind == GET_SCATTER;
    float *from = is_to_matrix ? flat : matrix, *to = is_to_matrix ? matrix : flat;
    fill(from, n, rank);
    memset(to, 0xff, n * n * sizeof *to);
    if (is_get)
        fill(what->exposed, n, rank);
    MPI_Barrier(MPI_COMM_WORLD);
    rounds_of(what, what->kind, 0, 1);
    if (!is_get || rank == 0) {
        int is_plain = what->kind == PLAIN || what->kind == GET_PLAIN;
        is_good = is_plain ? is_same(to, n, 1 - rank) : is_transposed(to, n, 1 - rank);
    }
    if (!is_good)
        fail("an element has another value", what->name);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* What the other rank does next. */
static void announce(enum kind kind, long index, long base, long rounds, long batches)
{
    long next[5] = { kind, index, base, rounds, batches };
    MPI_Send(next, 5, MPI_LONG, 1, 0, MPI_COMM_WORLD);
}

static void answer(struct what *all)
{
    for (;;) {
        long next[5];
        MPI_Recv(next, 5, MPI_LONG, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        struct what *what = &all[next[1]];
        if (next[0] == END)
            return;
        if (next[0] == CHECK) {
            check(what);
            continue;
        }
        long begin = cpu_ns();
        for (long i = 0; i < next[4]; i++)
            rounds_of(what, next[0], next[2] + i * next[3], next[3]);
        if (next[0] != LINE)
            atomic_fetch_add(&words[CPU_OF_PEER], cpu_ns() - begin);
    }
}

/* Batches of some rounds: the time of an operation in each. */
static long batches(struct what *what, long index, enum kind kind, long rounds, long count, double *times)
{
    static long base;
    announce(kind, index, base, rounds, count);
    for (long i = 0; i < count; i++) {
        double begin = now_ns();
        rounds_of(what, kind, base, rounds);
        times[i] = (now_ns() - begin) / (rounds * operations(kind));
        if (kind == LINE)
            base += rounds;
    }
    return count;
}

static void slice(struct what *all, long index, double slice_ns, FILE *file)
{
    static double times[SAMPLES_MAX], line_times[LINES_MAX];
    struct what *what = &all[index];
    long count = 0, line_count = 0, cpu = 0;
    announce(CHECK, index, 0, 0, 0);
    check(what);
    double warm[1];
    batches(what, index, what->kind, 1, 1, warm);
    int is_slow = warm[0] * operations(what->kind) > SLOW_NS;
    if (!is_slow)
        batches(what, index, what->kind, 1, 1, warm);
    double wanted = BATCH_NS / (warm[0] * operations(what->kind));
    long rounds = wanted > ROUNDS_MAX ? ROUNDS_MAX : wanted < 1 ? 1 : (long)wanted;
    double begin = now_ns();
    atomic_store(&words[CPU_OF_PEER], 0);
    /* What takes so long is not done more often than it must. */
    if (is_slow)
        times[count++] = warm[0];
    while (!is_slow) {
        if (line_count + LINE_BATCHES <= LINES_MAX) {
            batches(what, index, LINE, ROUNDS_MAX, LINE_BATCHES, line_times + line_count);
            line_count += LINE_BATCHES;
        }
        /* A chunk takes a tenth of a slice at most. */
        double chunk = slice_ns / 10 / (warm[0] * operations(what->kind) * rounds);
        long next = chunk > BATCHES_PER_CHUNK ? BATCHES_PER_CHUNK : chunk < 1 ? 1 : (long)chunk;
        if (count + next > SAMPLES_MAX)
            break;
        long before = cpu_ns(), before_peer = atomic_load(&words[CPU_OF_PEER]);
        count += batches(what, index, what->kind, rounds, next, times + count);
        cpu += cpu_ns() - before;
        /* The other's time is known when it has answered the next announcement. */
        batches(what, index, LINE, 1, 1, warm + 0);
        long after_peer = atomic_load(&words[CPU_OF_PEER]);
        cpu += after_peer > before_peer ? after_peer - before_peer : 0;
        warm[0] = times[count - 1];
        if (now_ns() - begin >= slice_ns)
            break;
    }
    if (!is_slow) {
        announce(CHECK, index, 0, 0, 0);
        check(what);
    }
    fprintf(file, "%s %ld %ld %ld", what->name, count * rounds * operations(what->kind), cpu, line_count);
    for (long i = 0; i < line_count; i++)
        fprintf(file, " %.1f", line_times[i]);
    for (long i = 0; i < count; i++)
        fprintf(file, " %.1f", times[i]);
    fputc('\n', file);
    fflush(file);
}

static const struct { const char *prefix; enum kind kind; int is_owned; } NAMES[] = {
    { "pingpong-", PINGPONG, 0 },       { "stream-", STREAM, 0 },             { "halves-", HALVES, 0 },
    { "send-gather-", GATHER, 0 },      { "send-scatter-", SCATTER, 0 },      { "send-plain-", PLAIN, 0 },
    { "get-gather-", GET_GATHER, 0 },   { "get-scatter-", GET_SCATTER, 0 },   { "get-plain-", GET_PLAIN, 0 },
    { "owned-get-gather-", GET_GATHER, 1 }, { "owned-get-scatter-", GET_SCATTER, 1 }, { "owned-get-plain-", GET_PLAIN, 1 },
};

static void prepare(struct what *what, const char *name)
{
    *what = (struct what){ .name = name, .window = MPI_WIN_NULL };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        size_t length = strlen(NAMES[i].prefix);
        if (strncmp(name, NAMES[i].prefix, length) == 0) {
            what->kind = NAMES[i].kind;
            what->is_owned = NAMES[i].is_owned;
            what->size = atol(name + length);
        }
    }
    if (what->kind == LINE || what->size < 1 || what->size > 64L << 20)
        fail("no such thing can be measured", name);
    if (what->kind < GATHER)
        return;
    int n = what->size;
    MPI_Aint bytes = (MPI_Aint)n * n * sizeof(float);
    MPI_Datatype column;
    MPI_Type_vector(n, 1, n, MPI_FLOAT, &column);
    MPI_Type_create_hvector(n, 1, sizeof(float), column, &what->columns);
    MPI_Type_commit(&what->columns);
    if (what->kind < GET_GATHER)
        return;
    if (what->is_owned) {
        MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &what->exposed, &what->window);
    } else {
        what->exposed = malloc(bytes);
        if (!what->exposed)
            fail("no memory", name);
        MPI_Win_create(what->exposed, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &what->window);
    }
    MPI_Win_lock_all(MPI_MODE_NOCHECK, what->window);
}

static void pin(const char *cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(atoi(cpu), &one);
    if (atoi(cpu) >= 0 && sched_setaffinity(0, sizeof one, &one) != 0)
        perror("pairs: cannot stay on one CPU");
}

static void map(const char *path)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *at = file < 0 ? MAP_FAILED : mmap(NULL, WORDS * sizeof *words, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) {
        perror(path);
        fail("cannot be mapped", path);
    }
    words = at;
}

int main(int count, char **arguments)
{
    int ranks;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || count < 8)
        fail("two ranks and seven arguments are needed", "start");
    pin(arguments[3 + rank]);
    map(arguments[2]);
    int passes = atoi(arguments[5]), whats = count - 7;
    double slice_ns = atof(arguments[6]) * 1e9;
    struct what *all = calloc(whats, sizeof *all);
    long block_bytes = 64, side = 1;
    for (int i = 0; i < whats; i++) {
        prepare(&all[i], arguments[7 + i]);
        long bytes = all[i].size;
        if (all[i].kind < GATHER && bytes > block_bytes)
            block_bytes = bytes;
        if (all[i].kind >= GATHER && all[i].size > side)
            side = all[i].size;
    }
    block = malloc(block_bytes);
    matrix = malloc(side * side * sizeof *matrix);
    flat = malloc(side * side * sizeof *flat);
    if (!block || !matrix || !flat)
        fail("no memory", "start");
    memset(block, 1, block_bytes);
    long own[2] = { getpid(), (long)block };
    MPI_Sendrecv(own, 2, MPI_LONG, 1 - rank, 2, &other, 2, MPI_LONG, 1 - rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 0) {
        answer(all);
    } else {
        FILE *file = fopen(arguments[1], "a");
        if (!file)
            fail("cannot be written", arguments[1]);
        for (int pass = 0; pass < passes; pass++)
            for (int i = 0; i < whats; i++)
                slice(all, i, slice_ns, file);
        announce(END, 0, 0, 0, 0);
        /* Some libraries do not come back from their own end: what was measured is whole all the same. */
        fputs("end\n", file);
        fclose(file);
    }
    for (int i = 0; i < whats; i++)
        if (all[i].window != MPI_WIN_NULL) {
            MPI_Win_unlock_all(all[i].window);
            MPI_Win_free(&all[i].window);
        }
    MPI_Finalize();
    return 0;
}
