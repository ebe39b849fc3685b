/*
 * The bandwidth of a mapped file: blocks are read and written back, by coroutines and by hand.
 *
 *     cormain: FILE BYTES BLOCK ROUNDS HUGE WORKERS MEETING
 *
 * FILE is a path of the worker's, #U/... or #r/...; what is done by hand uses the same file where it is one of the
 * host's, else memory of its own. Each round does, in turn: by hand with one buffer ahead (0), the same with the first
 * lines of the next block asked for (-1), and 1 to 7 coroutines. All workers do the same at the same time: they meet
 * before each, by a count in the file MEETING. Each has a part of the file for itself, and goes through it so often that it
 * has moved BYTES: what two write at once is not moved between them. A line of the log for each:
 *
 *     bandwidth WORKER HOW NANOSECONDS
 */
#define _GNU_SOURCE
#include "covey_cell.h"
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CORS 7
#define BLOCK_MAX 16384
#define HOWS (CORS + 2)
#define KEPT 100
#define HUGE_PAGE (2ul << 20)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static char buffers[CORS][BLOCK_MAX] __attribute__((aligned(128)));
static char stacks[CORS][4096] __attribute__((aligned(16)));
static int fd, running, cors;
static u64 bytes, block, workers, from, to;
static u64 *met;
static char *direct;
static u64 taken[KEPT][HOWS];

static u64
nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void
ask_ahead(const char *from)
{
    int line;

    for (line = 0; line < 8; line++)
        __builtin_prefetch(from + line * 64, 0, 3);
}

/* As a program does it that has two buffers and no coroutines. */
static void
pass_by_hand(int asks)
{
    u64 at, next;
    int now = 0;

    memcpy(buffers[0], direct + from, block);
    for (at = from; at < to; at += block) {
        next = at + block;
        if (next < to) {
            if (asks && next + block < to)
                ask_ahead(direct + next + block);
            memcpy(buffers[now ^ 1], direct + next, block);
        }
        memcpy(direct + at, buffers[now], block);
        now ^= 1;
    }
}

static u64
by_hand(int asks)
{
    u64 pass, begun = nanoseconds();

    for (pass = 0; pass < workers; pass++)
        pass_by_hand(asks);
    return nanoseconds() - begun;
}

static void
cor(void *argument)
{
    long id = (long) argument;
    u64 at, pass;

    for (pass = 0; pass < workers; pass++)
        for (at = from + id * block; at < to; at += cors * block) {
            spc_pread(fd, buffers[id], block, at);
            spc_pwrite(fd, buffers[id], block, at);
        }
    running--;
}

static u64
by_coroutines(int count)
{
    u64 begun;
    long id;

    cors = running = count;
    for (id = 1; id < count; id++)
        mkcor(cor, (void *) id, stacks[id], sizeof stacks[id]);
    /* The first coroutine is one of them: no other waits meanwhile. */
    begun = nanoseconds();
    cor(0);
    while (running > 0)
        yield();
    return nanoseconds() - begun;
}

static void
pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Nobody waits for this worker any more, nor for any other. */
static void
leave(void)
{
    __atomic_add_fetch(met, 1ull << 40, __ATOMIC_SEQ_CST);
}

/* Waits until all workers are here, or one has left or does not come for 20 s. */
static void
meet(void)
{
    static u64 times;
    u64 due = ++times * workers, begun = nanoseconds(), turn;

    __atomic_add_fetch(met, 1, __ATOMIC_SEQ_CST);
    for (turn = 1; __atomic_load_n(met, __ATOMIC_SEQ_CST) < due; turn++) {
        pause_briefly();
        if (turn % 1000 == 0)
            sched_yield();
        if (turn % 100000 == 0 && nanoseconds() - begun > 20000000000ull)
            leave();
    }
}

/* Where huge pages of the file are huge here, too. */
static char *
map(const char *path)
{
    int file = strncmp(path, "#U/", 3) == 0 ? open(path + 2, O_RDWR) : -1;
    int flags = file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    char *room = mmap(0, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (room == MAP_FAILED)
        return room;
    room += -(uintptr_t) room % HUGE_PAGE;
    return mmap(room, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, file, 0);
}

static void
tell(u64 worker, int rounds)
{
    int round, how;

    for (round = 0; round < rounds; round++)
        for (how = 0; how < HOWS; how++)
            spc_log("bandwidth %d %d %llu\n", (int) worker, how - 1, (unsigned long long) taken[round][how]);
}

void
cormain(u64 worker, char **argv)
{
    static const char zero[16] __attribute__((aligned(16)));
    int round, rounds, how;
    u64 at;

    bytes = strtoull(argv[2], 0, 10);
    block = strtoull(argv[3], 0, 10);
    rounds = atoi(argv[4]);
    workers = strtoull(argv[6], 0, 10);
    from = bytes / block * worker / workers * block;
    to = bytes / block * (worker + 1) / workers * block;
    met = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open(argv[7], O_RDWR), 0);
    fd = spc_open(argv[1]);
    direct = map(argv[1]);
    if (fd < 0 || direct == MAP_FAILED || met == MAP_FAILED || spc_pwrite(fd, zero, 16, bytes - 16) != 16) {
        spc_log("bandwidth failed\n");
        if (met != MAP_FAILED)
            leave();
        return;
    }
    /* All pages are there before anything is measured. */
    for (at = 0; at < bytes; at += 4096)
        direct[at] = 0;
    /* Another worker may be at it, too, and the system may have to move others' pages first. */
    for (round = 0; atoi(argv[5]) && madvise(direct, bytes, MADV_COLLAPSE) != 0; round++) {
        if (round == 200) {
            spc_log("huge pages failed\n");
            leave();
            return;
        }
        usleep(10000);
    }
    by_coroutines(1);
    /* The log is a message, and its host then looks for more of them: not between measurements. */
    for (round = 0; round < rounds; round++) {
        for (how = 0; how < HOWS; how++) {
            meet();
            taken[round % KEPT][how] = how < 2 ? by_hand(how == 0) : by_coroutines(how - 1);
        }
        if (round % KEPT == KEPT - 1 || round == rounds - 1)
            tell(worker, round % KEPT + 1);
    }
}
