/* Blocks to and fro between two programs, as NetPIPE does: the part that is the same over every message
 * library. Who includes it says how a block is sent and received.
 *
 * Arguments: FILE PASSES ROUNDS_MIN ROUNDS_MAX WARM_UP SLICE_S SLICES_MAX SECONDS_MAX SIZE...
 *
 * All sizes are gone through PASSES times. Each has SLICE_S of time for its rounds; a size whose least rounds
 * take more than SLICES_MAX of that is the last, and nothing is begun after SECONDS_MAX. The one that asks writes a
 * line to FILE, or to its output where that is `-`, for each size and pass: its bytes, then the nanoseconds of each
 * round trip. Lines are whole, so what there is when a peer dies can be used; the last one is `end`. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void give(const void *block, long bytes);
static void take(void *block, long bytes);

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static double round_trip_s(void *block, long bytes)
{
    double begin = now_s();
    give(block, bytes);
    take(block, bytes);
    return now_s() - begin;
}

/* What comes next: bytes and rounds. No rounds end it. */
static void announce(long bytes, long rounds)
{
    long next[2] = { bytes, rounds };
    give(next, sizeof next);
}

static void write_all(int file, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t count = write(file, text, length);
        if (count <= 0) {
            perror("blocks: cannot write the times");
            exit(3);
        }
        text += count;
        length -= count;
    }
}

static double by_time(double *times, long count)
{
    /* The median, by sorting in place; there are a few hundred at most. */
    for (long i = 1; i < count; i++)
        for (long j = i; j > 0 && times[j - 1] > times[j]; j--) {
            double other = times[j];
            times[j] = times[j - 1];
            times[j - 1] = other;
        }
    return times[count / 2];
}

static void ask(int count, char **words)
{
    if (count < 9) {
        fprintf(stderr, "blocks: too few arguments\n");
        exit(3);
    }
    int file = strcmp(words[0], "-") == 0 ? dup(STDOUT_FILENO)
                                          : open(words[0], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) {
        perror(words[0]);
        exit(3);
    }
    int passes = atoi(words[1]);
    long rounds_min = atol(words[2]), rounds_max = atol(words[3]), warm_up = atol(words[4]);
    double slice_s = atof(words[5]), slices_max = atof(words[6]), seconds_max = atof(words[7]);
    char **sizes = words + 8;
    int last = count - 8;
    long longest = 64;
    for (int i = 0; i < last; i++)
        if (atol(sizes[i]) > longest)
            longest = atol(sizes[i]);
    char *block = calloc(1, longest);
    double *times = calloc(rounds_max, sizeof *times);
    char *line = malloc(32 * (rounds_max + 2));
    if (!block || !times || !line) {
        fprintf(stderr, "blocks: no memory for %ld bytes\n", longest);
        exit(3);
    }
    announce(1, warm_up);
    double round_s = 1e-4;
    for (long i = 0; i < warm_up; i++)
        round_s = round_trip_s(block, 1);
    double begin = now_s();
    for (int pass = 0; pass < passes; pass++) {
        for (int i = 0; i < last && now_s() - begin <= seconds_max; i++) {
            long bytes = atol(sizes[i]);
            double wanted = slice_s / round_s;
            long rounds = wanted > rounds_max ? rounds_max : (long)wanted + 1;
            if (rounds < rounds_min)
                rounds = rounds_min;
            if (rounds > rounds_max)
                rounds = rounds_max;
            announce(bytes, rounds);
            size_t length = sprintf(line, "%ld", bytes);
            for (long k = 0; k < rounds; k++) {
                times[k] = round_trip_s(block, bytes);
                length += sprintf(line + length, " %.0f", times[k] * 1e9);
            }
            line[length++] = '\n';
            write_all(file, line, length);
            round_s = by_time(times, rounds);
            if (rounds_min * round_s > slices_max * slice_s)
                last = i + 1;
        }
        round_s = 1e-4;
    }
    announce(0, 0);
    /* Some libraries do not come back from their own end: what was measured is whole all the same. */
    write_all(file, "end\n", 4);
    close(file);
}

static void answer(int count, char **words)
{
    long longest = 64;
    for (int i = 8; i < count; i++)
        if (atol(words[i]) > longest)
            longest = atol(words[i]);
    char *block = calloc(1, longest);
    for (;;) {
        long next[2];
        take(next, sizeof next);
        if (next[1] <= 0)
            return;
        if (next[0] > longest) {
            fprintf(stderr, "blocks: %ld bytes were announced\n", next[0]);
            exit(3);
        }
        for (long i = 0; i < next[1]; i++) {
            take(block, next[0]);
            give(block, next[0]);
        }
    }
}
