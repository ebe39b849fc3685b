/*
 * What it takes to ask the host, and to give way.
 *
 *     cormain: ROUNDS
 *
 * Each round does, in turn: a line of memory goes to a thread on another CPU and back, TRIPS times (0), which is the
 * least that an answer can take; a read of 8 bytes that goes to the host by message, as often (1); and 16 coroutines give
 * way to each other, SWITCHES times in all (2). A line of the log for each:
 *
 *     trips 0 HOW NANOSECONDS
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include "covey_cell.h"

#define TRIPS 1000
#define SWITCHES 160000
#define CORS 16
#define KEPT 100

static struct {
    volatile uint32_t word __attribute__((aligned(128)));
} ping, pong __attribute__((aligned(128)));

static char stacks[CORS][4096] __attribute__((aligned(16)));
static char bytes[16] __attribute__((aligned(16)));
static int running, fd;
static u64 taken[KEPT][3];

static u64
nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void *
answer(void *mask)
{
    uint32_t next;

    sched_setaffinity(0, sizeof(cpu_set_t), mask);
    pong.word = 1;
    for (next = 1; next <= TRIPS; next++) {
        while (ping.word != next)
            ;
        pong.word = next + 1;
    }
    return 0;
}

static u64
floor_of_trips(void)
{
    cpu_set_t mask;
    pthread_t other;
    uint32_t next;
    u64 begun;
    int cpu;

    CPU_ZERO(&mask);
    for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (cpu != sched_getcpu())
            CPU_SET(cpu, &mask);
    ping.word = pong.word = 0;
    pthread_create(&other, 0, answer, &mask);
    while (pong.word != 1)
        ;
    begun = nanoseconds();
    for (next = 1; next <= TRIPS; next++) {
        ping.word = next;
        while (pong.word != next + 1)
            ;
    }
    begun = nanoseconds() - begun;
    pthread_join(other, 0);
    return begun;
}

static u64
trips(void)
{
    u64 begun;
    int trip;

    /* The host has gone to sleep meanwhile. */
    for (trip = 0; trip < 100; trip++)
        spc_pread(fd, bytes, 8, 0);
    begun = nanoseconds();
    for (trip = 0; trip < TRIPS; trip++)
        spc_pread(fd, bytes, 8, 0);
    return nanoseconds() - begun;
}

static void
turns(void *argument)
{
    int turn;

    for (turn = 0; turn < SWITCHES / CORS; turn++)
        yield();
    running--;
}

static u64
switches(void)
{
    u64 begun;
    long id;

    running = CORS;
    for (id = 1; id < CORS; id++)
        mkcor(turns, 0, stacks[id], sizeof stacks[id]);
    begun = nanoseconds();
    turns(0);
    while (running > 0)
        yield();
    return nanoseconds() - begun;
}

void
cormain(u64 worker, char **argv)
{
    int round, rounds = atoi(argv[1]), how, kept;

    fd = spc_open("#r/trips");
    if (fd < 0 || spc_pwrite(fd, bytes, 16, 0) != 16) {
        spc_log("trips failed\n");
        return;
    }
    for (round = 0; round < rounds; round++) {
        taken[round % KEPT][0] = floor_of_trips();
        taken[round % KEPT][1] = trips();
        taken[round % KEPT][2] = switches();
        if (round % KEPT < KEPT - 1 && round < rounds - 1)
            continue;
        for (kept = 0; kept <= round % KEPT; kept++)
            for (how = 0; how < 3; how++)
                spc_log("trips 0 %d %llu\n", how, (unsigned long long) taken[kept][how]);
    }
}
