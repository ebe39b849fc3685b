/*
 * interleave: what a parallel program does with a shared file, checked byte by byte.
 *
 * N ranks write one file together through collective MPI-IO. Rank r owns blocks r, r+N, r+2N, ...:
 * block boundaries fall inside strips and pages, so servers and ranks meet everywhere. Then
 * every rank reads what its neighbour wrote, again collectively, and rank 0 reads the whole file
 * with plain POSIX calls, as a program that knows nothing of MPI would.
 *
 *   mpiexec -n 4 interleave FILE [BLOCK_BYTES [BLOCKS_PER_RANK]]
 *
 * Ends with 0 only if every byte was right.
 */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 4 };

static int rank, ranks;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "interleave: rank %d: cannot %s: %s\n", rank, what, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void check(int code, const char *what) {
    if (code != MPI_SUCCESS) {
        char why[MPI_MAX_ERROR_STRING];
        int length;
        MPI_Error_string(code, why, &length);
        fail(what, why);
    }
}

/* What belongs at an offset of the file: depends on every bit of it (a splitmix64 step). */
static uint64_t word_at(uint64_t index) {
    uint64_t x = index * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static unsigned char byte_at(uint64_t offset) {
    return (unsigned char)(word_at(offset / 8) >> (offset % 8 * 8));
}

/* The blocks of one rank in a round, one after the other, and where each lies in the file. */
struct part {
    int64_t round, owner, block_bytes, blocks;
};

static int64_t offset_in_file(const struct part *part, int64_t at) {
    int64_t block = at / part->block_bytes;
    int64_t in_round = (block * ranks + part->owner) * part->block_bytes;
    return part->round * part->blocks * ranks * part->block_bytes + in_round + at % part->block_bytes;
}

static void fill(const struct part *part, unsigned char *buffer) {
    for (int64_t at = 0; at < part->blocks * part->block_bytes; at++) {
        buffer[at] = byte_at((uint64_t)offset_in_file(part, at));
    }
}

static int64_t wrong_bytes(const struct part *part, const unsigned char *buffer) {
    int64_t wrong = 0;
    for (int64_t at = 0; at < part->blocks * part->block_bytes; at++) {
        wrong += buffer[at] != byte_at((uint64_t)offset_in_file(part, at));
    }
    return wrong;
}

/* Shows this rank the blocks of `owner` as if they were one file without gaps. */
static void set_view(MPI_File file, const struct part *part) {
    MPI_Datatype blocks;
    check(MPI_Type_vector((int)part->blocks, (int)part->block_bytes, (int)(part->block_bytes * ranks),
                          MPI_BYTE, &blocks), "describe the blocks");
    check(MPI_Type_commit(&blocks), "describe the blocks");
    MPI_Offset start = part->round * part->blocks * ranks * part->block_bytes
                       + part->owner * part->block_bytes;
    check(MPI_File_set_view(file, start, MPI_BYTE, blocks, "native", MPI_INFO_NULL), "set the view");
    check(MPI_Type_free(&blocks), "free a type");
}

static void check_count(const MPI_Status *status, int64_t wanted, const char *what) {
    int count;
    MPI_Get_count(status, MPI_BYTE, &count);
    if (count != wanted) {
        char why[80];
        snprintf(why, sizeof why, "%d of %lld bytes", count, (long long)wanted);
        fail(what, why);
    }
}

static double write_all(MPI_File file, struct part part, unsigned char *buffer) {
    int64_t bytes = part.blocks * part.block_bytes;
    double seconds = 0;
    for (part.round = 0; part.round < ROUNDS; part.round++) {
        MPI_Status status;
        fill(&part, buffer);
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = MPI_Wtime();
        set_view(file, &part);
        check(MPI_File_write_all(file, buffer, (int)bytes, MPI_BYTE, &status), "write");
        seconds += MPI_Wtime() - begun;
        check_count(&status, bytes, "write");
    }
    double begun = MPI_Wtime();
    check(MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);
    return seconds + MPI_Wtime() - begun;
}

static double read_all(MPI_File file, struct part part, unsigned char *buffer, int64_t *wrong) {
    int64_t bytes = part.blocks * part.block_bytes;
    double seconds = 0;
    check(MPI_File_sync(file), "sync");
    for (part.round = 0; part.round < ROUNDS; part.round++) {
        MPI_Status status;
        memset(buffer, 0, (size_t)bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = MPI_Wtime();
        set_view(file, &part);
        check(MPI_File_read_all(file, buffer, (int)bytes, MPI_BYTE, &status), "read");
        seconds += MPI_Wtime() - begun;
        check_count(&status, bytes, "read");
        *wrong += wrong_bytes(&part, buffer);
    }
    return seconds;
}

/* The whole file, with open(2) and read(2). */
static int64_t wrong_in_file(const char *path, int64_t wanted) {
    static unsigned char buffer[1 << 20];
    int64_t at = 0, wrong = 0;
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        fail("open with open(2)", strerror(errno));
    }
    for (;;) {
        ssize_t count = read(fd, buffer, sizeof buffer);
        if (count < 0) {
            fail("read with read(2)", strerror(errno));
        }
        if (count == 0) {
            break;
        }
        for (ssize_t i = 0; i < count; i++, at++) {
            wrong += buffer[i] != byte_at((uint64_t)at);
        }
    }
    close(fd);
    if (at != wanted) {
        fprintf(stderr, "interleave: the file has %lld bytes, not %lld\n", (long long)at,
                (long long)wanted);
        wrong += llabs(wanted - at);
    }
    return wrong;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 2) {
        fail("start", "usage: interleave FILE [BLOCK_BYTES [BLOCKS_PER_RANK]]");
    }
    const char *path = argv[1];
    /* 10,007 is prime: no boundary of a block is one of a page or a strip but the first. */
    struct part mine = {.owner = rank,
                        .block_bytes = argc > 2 ? atoll(argv[2]) : 10007,
                        .blocks = argc > 3 ? atoll(argv[3]) : 400};
    struct part next = mine;
    next.owner = (rank + 1) % ranks;
    int64_t bytes = mine.blocks * mine.block_bytes, total = bytes * ranks * ROUNDS;
    if (mine.block_bytes < 1 || mine.blocks < 1 || bytes > INT32_MAX / ranks) {
        fail("start", "BLOCK_BYTES times BLOCKS_PER_RANK is out of range");
    }
    unsigned char *buffer = malloc((size_t)bytes);
    if (buffer == NULL) {
        fail("start", "out of memory");
    }
    MPI_File file;
    /* Rank 0 clears an older file first, so that nothing right is left from an earlier run. */
    if (rank == 0 && unlink(path) != 0 && errno != ENOENT) {
        fail("remove the old file", strerror(errno));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    check(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file),
          "open");
    double write_seconds = write_all(file, mine, buffer);
    int64_t wrong = 0, wrong_anywhere = 0;
    double read_seconds = read_all(file, next, buffer, &wrong);
    check(MPI_File_close(&file), "close");
    check(MPI_Allreduce(&wrong, &wrong_anywhere, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD), "add up");
    if (rank == 0) {
        int64_t wrong_posix = wrong_in_file(path, total);
        double mb = (double)total / 1e6;
        printf("%d ranks wrote %lld interleaved blocks of %lld bytes: %.1f MB in one file\n", ranks,
               (long long)(mine.blocks * ranks * ROUNDS), (long long)mine.block_bytes, mb);
        printf("collective write %.0f MB/s with sync, collective read %.0f MB/s\n",
               mb / write_seconds, mb / read_seconds);
        printf("read by the neighbour rank: %lld bytes wrong; read with read(2): %lld bytes wrong\n",
               (long long)wrong_anywhere, (long long)wrong_posix);
        wrong_anywhere += wrong_posix;
    }
    MPI_Bcast(&wrong_anywhere, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
    free(buffer);
    MPI_Finalize();
    return wrong_anywhere == 0 ? 0 : 1;
}
