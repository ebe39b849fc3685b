/* What programs that time whole calls over MPI have in common.
 *
 * Each thing timed is one line of a file, which rank 0 writes:
 *
 *     WHAT RANKS BYTES ok|wrong NS...
 *
 * with the nanoseconds of a call in each of several batches, those of the process that took longest. The last line is
 * `end`. */
#define _GNU_SOURCE
#include "finish.h"
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 15, CALLS_MAX = 1000 };

/* The processes that take part. */
struct team {
    MPI_Comm all;
    int rank, ranks;
};

typedef void act(const struct team *team, void *what);

static int file = -1;

static void abandon(const char *what)
{
    fprintf(stderr, "cannot measure: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 3);
    exit(3);
}

static void *memory(size_t bytes)
{
    void *found = calloc(1, bytes + 64);
    if (!found)
        abandon("there is no memory");
    return found;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static void begin_records(const char *name)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank > 0)
        return;
    file = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0)
        abandon("the file of the times cannot be written");
}

static void end_all(void)
{
    if (file >= 0)
        dprintf(file, "end\n");
    finish();
}

/* Everywhere the same: whether it is so for all. */
static int for_all(const struct team *team, int is_so)
{
    int all;
    MPI_Allreduce(&is_so, &all, 1, MPI_INT, MPI_LAND, team->all);
    return all;
}

static double batch_s(const struct team *team, act *call, void *what, long calls)
{
    MPI_Barrier(team->all);
    double begin = now_s();
    for (long i = 0; i < calls; i++)
        call(team, what);
    double mine = (now_s() - begin) / calls, longest;
    MPI_Allreduce(&mine, &longest, 1, MPI_DOUBLE, MPI_MAX, team->all);
    return longest;
}

/* Batches of calls, `seconds` of them altogether as far as that is possible, and their line. */
static void timed(const struct team *team, const char *name, long bytes, int is_right, act *call, void *what, double seconds)
{
    batch_s(team, call, what, 1);
    double wanted = seconds / BATCHES / batch_s(team, call, what, 2);
    long calls = wanted < 1 ? 1 : wanted > CALLS_MAX ? CALLS_MAX : (long)wanted;
    char line[64 + 24 * BATCHES];
    int length = sprintf(line, "%.31s %d %ld %s", name, team->ranks, bytes, for_all(team, is_right) ? "ok" : "wrong");
    for (int i = 0; i < BATCHES; i++)
        length += sprintf(line + length, " %.0f", batch_s(team, call, what, calls) * 1e9);
    if (team->rank == 0 && file >= 0)
        dprintf(file, "%s\n", line);
}
