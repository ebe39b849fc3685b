/* Random datatypes put to and got from windows of every kind, in every way of synchronising. Each rank prints a
 * line for each round, with a hash of its part of the window and of all memory that was got to, gaps
 * included: what it prints must not depend on who moves the data. usage: windows SEED ROUNDS [LOCKS [WAYS]], WAYS
 * being 2 where MPI itself cannot do it by locks. */
#include "types.h"
#include <unistd.h>

/* A part of a window: numbers that are added to, a margin, and for each origin a place to put and one to get. */
enum { NUMBERS = 16, MOST = 1500, MARGIN = 64 << 10, PLACE = 112 << 10 };
enum { CREATED, CREATED_IN_UNITS, ALLOCATED, SHARED, WINDOWS };
enum { FENCE, START, LOCK, EXCLUSIVE, LOCK_ALL, REQUESTS, WAYS };

static int rank, ranks, round_number, ways = WAYS;
static uint64_t hash;

struct part {
    MPI_Win window;
    unsigned char *base;
    size_t bytes;
    int unit;
};
static struct part parts[WINDOWS];

static unsigned fill(int from, int number)
{
    return (unsigned)(round_number * 1000003 + from * 101 + number * 7 + 1);
}

static size_t place_of(int origin, int is_put)
{
    return MARGIN + ((size_t)origin * 2 + (size_t)is_put) * PLACE;
}

static void make(int kind)
{
    struct part *part = &parts[kind];
    part->bytes = place_of(ranks, 0);
    part->unit = kind == CREATED ? 1 : 4;
    if (kind == ALLOCATED)
        MPI_Win_allocate((MPI_Aint)part->bytes, part->unit, MPI_INFO_NULL, MPI_COMM_WORLD, &part->base, &part->window);
    else if (kind == SHARED)
        MPI_Win_allocate_shared((MPI_Aint)part->bytes, part->unit, MPI_INFO_NULL, MPI_COMM_WORLD, &part->base,
                                &part->window);
    else {
        part->base = malloc(part->bytes);
        MPI_Win_create(part->base, (MPI_Aint)part->bytes, part->unit, MPI_INFO_NULL, MPI_COMM_WORLD, &part->window);
    }
}

/* ---- one epoch ---- */

struct transfer {
    struct memory memory;
    MPI_Request request;
};

/* Everything that this rank does to one other. Written places differ by origin, so the order does not matter. */
static void access_rank(const struct part *part, int to, MPI_Datatype type, int count, int by_request,
                        struct transfer *transfers)
{
    MPI_Aint first, span, at;
    int size, one[NUMBERS];
    MPI_Type_get_true_extent(type, &first, &span);
    MPI_Type_size(type, &size);
    for (int puts = 0; puts < 2; puts++) {
        struct transfer *is = &transfers[to * 2 + puts];
        int as_bytes = dice(3) == 0, near_count = as_bytes ? size * count : count;
        MPI_Datatype near = as_bytes ? MPI_BYTE : type;
        at = ((MPI_Aint)place_of(rank, puts) + 64 - first + 3) / 4 * 4 / part->unit;
        is->memory = memory_for(near, near_count, fill(rank, to * 2 + puts));
        if (puts && by_request)
            MPI_Rput(is->memory.at, near_count, near, to, at, count, type, part->window, &is->request);
        else if (puts)
            MPI_Put(is->memory.at, near_count, near, to, at, count, type, part->window);
        else if (by_request)
            MPI_Rget(is->memory.at, near_count, near, to, at, count, type, part->window, &is->request);
        else
            MPI_Get(is->memory.at, near_count, near, to, at, count, type, part->window);
    }
    for (int i = 0; i < NUMBERS; i++)
        one[i] = rank + i;
    MPI_Accumulate(one, NUMBERS, MPI_INT, to, 0, NUMBERS, MPI_INT, MPI_SUM, part->window);
}

/* What the owner stores before others may get it. */
static void store(struct part *part)
{
    unsigned number = fill(rank, 50);
    int late = dice(4), us = dice(3000);
    if (late == rank)
        usleep((unsigned)us);
    for (int origin = 0; origin < ranks; origin++)
        for (size_t i = 0; i < PLACE; i++) {
            number = number * 1664525u + 1013904223u;
            part->base[place_of(origin, 0) + i] = (unsigned char)(number >> 24);
        }
}

static void look(struct part *part)
{
    hash = hash_of(part->base, sizeof(int) * NUMBERS, hash);
    hash = hash_of(part->base + MARGIN, part->bytes - MARGIN, hash);
}

/* Others first: an operation on oneself may wait for everybody. */
static void all_ranks(struct part *part, MPI_Datatype type, int count, struct transfer *transfers)
{
    for (int i = 1; i <= ranks; i++)
        access_rank(part, (rank + i) % ranks, type, count, 0, transfers);
}

static void by_fence(struct part *part, MPI_Datatype type, int count, struct transfer *transfers)
{
    store(part);
    MPI_Win_fence(dice(2) ? MPI_MODE_NOPRECEDE : 0, part->window);
    all_ranks(part, type, count, transfers);
    MPI_Win_fence(dice(2) ? MPI_MODE_NOSUCCEED : 0, part->window);
    look(part);
}

static void by_start(struct part *part, MPI_Datatype type, int count, struct transfer *transfers)
{
    MPI_Group group;
    MPI_Win_get_group(part->window, &group);
    store(part);
    MPI_Win_post(group, 0, part->window);
    MPI_Win_start(group, 0, part->window);
    all_ranks(part, type, count, transfers);
    MPI_Win_complete(part->window);
    int is_done = dice(2) == 0;
    if (is_done)
        MPI_Win_wait(part->window);
    while (!is_done)
        MPI_Win_test(part->window, &is_done);
    look(part);
    MPI_Group_free(&group);
}

static void by_lock(struct part *part, MPI_Datatype type, int count, struct transfer *transfers, int kind)
{
    for (int i = 0; i < ranks; i++) {
        int to = (rank + i) % ranks;
        MPI_Win_lock(kind, to, 0, part->window);
        access_rank(part, to, type, count, 0, transfers);
        if (dice(2))
            MPI_Win_flush(to, part->window);
        MPI_Win_unlock(to, part->window);
    }
}

static void by_all(struct part *part, MPI_Datatype type, int count, struct transfer *transfers, int by_request)
{
    MPI_Win_lock_all(dice(2) ? MPI_MODE_NOCHECK : 0, part->window);
    for (int i = 0; i < ranks; i++)
        access_rank(part, i, type, count, by_request, transfers);
    for (int i = 0; by_request && i < 2 * ranks; i++)
        MPI_Wait(&transfers[i].request, MPI_STATUS_IGNORE);
    if (dice(2))
        MPI_Win_flush_all(part->window);
    MPI_Win_unlock_all(part->window);
}

static void passively(struct part *part, MPI_Datatype type, int count, struct transfer *transfers, int way)
{
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, part->window);
    store(part);
    MPI_Win_unlock(rank, part->window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (way == LOCK || way == EXCLUSIVE)
        by_lock(part, type, count, transfers, way == LOCK ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE);
    else
        by_all(part, type, count, transfers, way == REQUESTS);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, part->window);
    look(part);
    MPI_Win_unlock(rank, part->window);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void one_round(void)
{
    struct part *part = &parts[dice(WINDOWS)];
    int way = dice(ways), count = 1 + dice(2);
    MPI_Datatype type = random_type(MOST);
    struct transfer *transfers = calloc((size_t)ranks * 2, sizeof *transfers);
    hash = 14695981039346656037ull;
    if (way == FENCE)
        by_fence(part, type, count, transfers);
    else if (way == START)
        by_start(part, type, count, transfers);
    else
        passively(part, type, count, transfers, way);
    for (int i = 0; i < 2 * ranks; i++) {
        hash = hash_of(transfers[i].memory.base, transfers[i].memory.bytes, hash);
        free(transfers[i].memory.base);
    }
    printf("%d %d way %d window %d %016llx\n", round_number, rank, way, (int)(part - parts), (unsigned long long)hash);
    MPI_Type_free(&type);
    free(transfers);
}

/* ---- what a lock is for ---- */

/* Numbers that lie apart, counted up under an exclusive lock by everybody; now and then by MPI's own operation. */
static void count_up(struct part *part, int times)
{
    enum { APART = 64 };
    int numbers[NUMBERS], wrong = 0;
    MPI_Datatype apart;
    MPI_Type_vector(NUMBERS, 1, APART, MPI_INT, &apart);
    MPI_Type_commit(&apart);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, part->window);
    memset(part->base, 0, sizeof(int) * NUMBERS * APART);
    MPI_Win_unlock(rank, part->window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < times; i++) {
        int to = i % ranks;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, part->window);
        if (i % 5 == 4) {
            for (int j = 0; j < NUMBERS; j++)
                numbers[j] = 1;
            MPI_Accumulate(numbers, NUMBERS, MPI_INT, to, 0, 1, apart, MPI_SUM, part->window);
        } else {
            MPI_Get(numbers, NUMBERS, MPI_INT, to, 0, 1, apart, part->window);
            MPI_Win_flush(to, part->window);
            for (int j = 0; j < NUMBERS; j++)
                numbers[j]++;
            MPI_Put(numbers, NUMBERS, MPI_INT, to, 0, 1, apart, part->window);
        }
        MPI_Win_unlock(to, part->window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, part->window);
    int expected = ranks * (times / ranks + (rank < times % ranks));
    for (int j = 0; j < NUMBERS; j++)
        wrong += ((int *)(void *)part->base)[j * APART] != expected;
    MPI_Win_unlock(rank, part->window);
    printf("%d counted %s\n", rank, wrong ? "wrong" : "right");
    MPI_Type_free(&apart);
}

/* ---- errors ---- */

static int class_of(int code)
{
    int class;
    MPI_Error_class(code, &class);
    return class;
}

/* They are MPI's, as they are without anybody between. */
static void mistakes(struct part *part)
{
    int numbers[4] = {0}, codes[4];
    MPI_Datatype apart, raw;
    MPI_Type_vector(4, 1, 2, MPI_INT, &apart);
    MPI_Type_dup(apart, &raw);
    MPI_Type_commit(&apart);
    MPI_Win_set_errhandler(part->window, MPI_ERRORS_RETURN);
    MPI_Win_lock_all(0, part->window);
    codes[0] = MPI_Get(numbers, 4, MPI_INT, ranks, 0, 1, apart, part->window);
    codes[1] = MPI_Get(numbers, 4, MPI_INT, 0, -1, 1, apart, part->window);
    codes[2] = MPI_Put(numbers, 4, MPI_INT, 0, 0, 1, raw, part->window);
    codes[3] = MPI_Put(numbers, 4, MPI_INT, MPI_PROC_NULL, 0, 1, apart, part->window);
    MPI_Win_unlock_all(part->window);
    printf("%d mistakes %d %d %d %d\n", rank, class_of(codes[0]), class_of(codes[1]), class_of(codes[2]),
           class_of(codes[3]));
    MPI_Type_free(&apart), MPI_Type_free(&raw);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int rounds = argc > 2 ? atoi(argv[2]) : 100, locks = argc > 3 ? atoi(argv[3]) : 100;
    if (argc > 4)
        ways = atoi(argv[4]);
    for (int kind = 0; kind < WINDOWS; kind++) {
        make(kind);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, parts[kind].window);
        memset(parts[kind].base, 0, parts[kind].bytes);
        MPI_Win_unlock(rank, parts[kind].window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (round_number = 0; round_number < rounds; round_number++)
        one_round();
    for (int kind = 0; kind < WINDOWS; kind++)
        count_up(&parts[kind], locks);
    mistakes(&parts[CREATED]);
    for (int kind = 0; kind < WINDOWS; kind++) {
        MPI_Win_free(&parts[kind].window);
        if (kind < ALLOCATED)
            free(parts[kind].base);
    }
    MPI_Finalize();
    return 0;
}
