// Random operations on one file against a copy in memory: whatever the file system says that
// differs from what the copy says is a failure, and the operations that led there are told.
//
//   cc -O2 -o fsx fsx.c
//   fsx [-s SEED] [-n OPERATIONS] [-l LENGTH_MAX] [-c] [-q] FILE [SAME_FILE_ON_ANOTHER_MOUNT...]
//
// Each operation goes to one of the paths, chosen at random: on several mounts of one file system
// every operation must see what all those before have done, wherever they were done. Mappings are made
// for one operation and, on several mounts, on a newly opened file: that is what is promised of them.
// With -c the file is closed before another path's turn, and opened there: only what close-to-open
// consistency promises is relied on.
// The idea is Apple's fsx; the code is our own.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATHS_MAX 8
#define LOG_LINES 60

static char *paths[PATHS_MAX];
static int files[PATHS_MAX], path_count;
static uint8_t *model, *buffer;
static size_t size, length_max = 400000;
static uint64_t random_state;
static char log_lines[LOG_LINES][160];
static unsigned long operation, operations = 2000, counts[32];
static int quiet, closes, current;

static uint64_t random_number(uint64_t below) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return below ? (random_state * 0x2545f4914f6cdd1dULL >> 16) % below : 0;
}

static void note(const char *format, ...) {
    va_list arguments;
    char *line = log_lines[operation % LOG_LINES];
    int used = snprintf(line, 160, "%lu: ", operation);
    va_start(arguments, format);
    vsnprintf(line + used, 160 - used, format, arguments);
    va_end(arguments);
}

static void fail(const char *format, ...) {
    va_list arguments;
    unsigned long first = operation >= LOG_LINES ? operation - LOG_LINES + 1 : 1;
    int error = errno;
    for (unsigned long at = first; at <= operation; at++)
        fprintf(stderr, "%s\n", log_lines[at % LOG_LINES]);
    fprintf(stderr, "fsx: ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, " (errno %d: %s)\n", error, strerror(error));
    exit(1);
}

static void open_file(int which) {
    files[which] = open(paths[which], O_RDWR | O_CREAT, 0644);
    if (files[which] < 0)
        fail("cannot open %s", paths[which]);
}

// Offsets that file systems get wrong: around pages, strips, inline data and the end.
static size_t some_offset(size_t below) {
    static const size_t edges[] = {4096, 16384, 65536};
    if (!below)
        return 0;
    if (random_number(3) == 0) {
        size_t edge = edges[random_number(3)];
        size_t at = random_number(below / edge + 1) * edge + random_number(5) - 2;
        if (at < below)
            return at;
    }
    return random_number(below);
}

static size_t some_length(size_t most) {
    size_t most_now = random_number(4) == 0 ? most : most < 20000 ? most : 20000;
    return most_now ? 1 + random_number(most_now) : 0;
}

static void compare(const uint8_t *found, size_t from, size_t length, const char *what) {
    for (size_t at = 0; at < length; at++)
        if (found[at] != model[from + at])
            fail("%s: byte %zu is %02x, should be %02x", what, from + at, found[at],
                 model[from + at]);
}

static void fill(size_t from, size_t length) {
    for (size_t at = 0; at < length; at++)
        model[from + at] = (uint8_t)(operation * 31 + at + 1);
}

static void grow(size_t end) {
    if (end > size)
        size = end;
}

static void check_size(int which) {
    struct stat stat;
    if (fstat(files[which], &stat))
        fail("fstat");
    if ((size_t)stat.st_size != size)
        fail("the size on path %d is %zu, should be %zu", which, (size_t)stat.st_size, size);
}

static void do_read(int which) {
    size_t from = some_offset(size + 5000), length = some_length(length_max);
    note("read %d: %zu + %zu", which, from, length);
    ssize_t got = pread(files[which], buffer, length, from);
    size_t wanted = from >= size ? 0 : size - from < length ? size - from : length;
    if (got < 0 || (size_t)got != wanted)
        fail("read %zd bytes, should be %zu of a file of %zu", got, wanted, size);
    compare(buffer, from, wanted, "read");
}

static void do_write(int which) {
    size_t from = some_offset(length_max), length = some_length(length_max - from);
    note("write %d: %zu + %zu", which, from, length);
    fill(from, length);
    ssize_t put = pwrite(files[which], model + from, length, from);
    if (put < 0 || (size_t)put != length)
        fail("wrote %zd bytes of %zu", put, length);
    grow(from + length);
}

static void do_append(int which) {
    size_t length = some_length(length_max - size);
    note("append %d: %zu at %zu", which, length, size);
    if (!length)
        return;
    int file = open(paths[which], O_WRONLY | O_APPEND);
    if (file < 0)
        fail("open to append");
    fill(size, length);
    ssize_t put = write(file, model + size, length);
    if (put < 0 || (size_t)put != length)
        fail("appended %zd bytes of %zu", put, length);
    close(file);
    grow(size + length);
}

static void do_truncate(int which) {
    size_t to = random_number(3) ? some_offset(length_max) : some_offset(size + 1);
    note("truncate %d: %zu to %zu", which, size, to);
    if (ftruncate(files[which], to))
        fail("ftruncate");
    if (to < size)
        memset(model + to, 0, size - to);
    size = to;
}

static uint8_t *map(int which, int *file, size_t from, size_t length, int access) {
    *file = path_count > 1 ? open(paths[which], O_RDWR) : files[which];
    if (*file < 0)
        fail("open to map");
    uint8_t *at = mmap(NULL, length, access, MAP_SHARED, *file, from);
    if (at == MAP_FAILED)
        fail("mmap");
    return at;
}

static void unmap(int file, uint8_t *at, size_t length, int sync) {
    if (sync && msync(at, length, MS_SYNC))
        fail("msync");
    if (munmap(at, length))
        fail("munmap");
    if (path_count > 1)
        close(file);
}

static void do_map_read(int which) {
    int file;
    size_t from = some_offset(size), length = some_length(size - from);
    size_t page = from & ~(size_t)4095, lead = from - page;
    note("map read %d: %zu + %zu", which, from, length);
    if (!length)
        return;
    uint8_t *at = map(which, &file, page, lead + length, PROT_READ);
    compare(at + lead, from, length, "mapped");
    unmap(file, at, lead + length, 0);
}

static void do_map_write(int which) {
    int file;
    size_t from = some_offset(size), length = some_length(size - from);
    size_t page = from & ~(size_t)4095, lead = from - page;
    // On one mount the calls see what is mapped without msync.
    int sync = path_count > 1 || random_number(2);
    note("map write %d: %zu + %zu%s", which, from, length, sync ? ", synced" : "");
    if (!length)
        return;
    uint8_t *at = map(which, &file, page, lead + length, PROT_READ | PROT_WRITE);
    fill(from, length);
    memcpy(at + lead, model + from, length);
    unmap(file, at, lead + length, sync);
}

static void do_fallocate(int which) {
    static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
                                FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
    int mode = modes[random_number(6)];
    size_t from = some_offset(length_max), length = some_length(length_max - from);
    note("fallocate %d: mode %d, %zu + %zu of %zu", which, mode, from, length, size);
    if (fallocate(files[which], mode, from, length)) {
        if (errno == EOPNOTSUPP)
            return;
        fail("fallocate");
    }
    if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) {
        size_t end = from + length;
        if (end > size)
            end = size;
        if (from < end)
            memset(model + from, 0, end - from);
    }
    if (!(mode & FALLOC_FL_KEEP_SIZE))
        grow(from + length);
}

static void do_copy(int which) {
    size_t length = some_length(length_max / 3);
    size_t from = some_offset(length_max - length), to = some_offset(length_max - length);
    size_t apart = from > to ? from - to : to - from;
    size_t wanted = from >= size ? 0 : size - from < length ? size - from : length;
    if (apart < length)
        return;
    note("copy %d: %zu + %zu to %zu of %zu", which, from, length, to, size);
    // The kernel copies up to the size that it has last heard of.
    check_size(which);
    for (size_t done = 0; done < wanted;) {
        off_t in = from + done, out = to + done;
        ssize_t step = copy_file_range(files[which], &in, files[which], &out, length - done, 0);
        if (step <= 0)
            fail("copied %zd, %zu to come", step, wanted - done);
        done += step;
        if (done > wanted)
            fail("copied %zu, there are %zu", done, wanted);
    }
    memmove(model + to, model + from, wanted);
    if (wanted)
        grow(to + wanted);
}

// A hole reads as zeros; data and holes alternate and end at the end.
static void do_seek(int which) {
    size_t at = some_offset(size);
    note("seek %d: from %zu of %zu", which, at, size);
    while (at < size) {
        off_t data = lseek(files[which], at, SEEK_DATA);
        if (data < 0 && errno != ENXIO)
            fail("SEEK_DATA at %zu", at);
        size_t next = data < 0 ? size : (size_t)data;
        if (next < at || next > size)
            fail("data at %zu, looked for from %zu of %zu", next, at, size);
        for (; at < next; at++)
            if (model[at])
                fail("byte %zu of a hole up to %zu is %02x", at, next, model[at]);
        if (data < 0)
            return;
        off_t hole = lseek(files[which], at, SEEK_HOLE);
        if (hole <= data || (size_t)hole > size)
            fail("a hole at %zd behind data at %zd of %zu", (ssize_t)hole, (ssize_t)data, size);
        at = hole;
    }
}

static void do_reopen(int which) {
    note("reopen %d", which);
    close(files[which]);
    open_file(which);
}

static void do_sync(int which) {
    note("fsync %d", which);
    if (random_number(2) ? fsync(files[which]) : fdatasync(files[which]))
        fail("fsync");
}

static void do_compare_all(int which) {
    note("compare all %d", which);
    ssize_t got = pread(files[which], buffer, length_max, 0);
    if (got < 0 || (size_t)got != size)
        fail("read %zd bytes of %zu", got, size);
    compare(buffer, 0, size, "all");
}

// A path's turn.
static void use(int which) {
    if (!closes || which == current)
        return;
    if (close(files[current]))
        fail("close of path %d", current);
    current = which;
    open_file(which);
}

static const struct {
    const char *name;
    void (*act)(int);
    unsigned weight;
} kinds[] = {
    {"read", do_read, 12},           {"write", do_write, 14},       {"append", do_append, 3},
    {"truncate", do_truncate, 6},    {"map read", do_map_read, 6},  {"map write", do_map_write, 6},
    {"fallocate", do_fallocate, 10}, {"copy", do_copy, 5},          {"seek", do_seek, 5},
    {"reopen", do_reopen, 2},        {"fsync", do_sync, 2},         {"compare", do_compare_all, 2},
};
#define KINDS (sizeof kinds / sizeof *kinds)

int main(int argc, char **argv) {
    uint64_t seed = 1;
    int option;
    while ((option = getopt(argc, argv, "s:n:l:cq")) != -1) {
        switch (option) {
        case 's': seed = strtoull(optarg, NULL, 0); break;
        case 'n': operations = strtoul(optarg, NULL, 0); break;
        case 'l': length_max = strtoul(optarg, NULL, 0); break;
        case 'c': closes = 1; break;
        case 'q': quiet = 1; break;
        default: return 2;
        }
    }
    for (; optind < argc && path_count < PATHS_MAX; optind++)
        paths[path_count++] = argv[optind];
    if (!path_count || length_max < 10) {
        fprintf(stderr, "usage: fsx [-s SEED] [-n OPERATIONS] [-l LENGTH_MAX] [-c] [-q] FILE...\n");
        return 2;
    }
    random_state = seed * 0x9e3779b97f4a7c15ULL + 1;
    model = calloc(1, length_max + 8192);
    buffer = malloc(length_max + 8192);
    for (int which = 0; which < (closes ? 1 : path_count); which++)
        open_file(which);
    if (ftruncate(files[0], 0))
        fail("ftruncate");
    unsigned total = 0;
    for (size_t kind = 0; kind < KINDS; kind++)
        total += kinds[kind].weight;
    for (operation = 1; operation <= operations; operation++) {
        unsigned chosen = random_number(total);
        size_t kind = 0;
        while (chosen >= kinds[kind].weight)
            chosen -= kinds[kind++].weight;
        int which = random_number(path_count);
        note("nothing");
        use(which);
        kinds[kind].act(which);
        counts[kind]++;
        int looks = random_number(path_count);
        check_size(closes ? current : looks);
    }
    operation--;
    for (int which = 0; which < path_count; which++) {
        use(which);
        do_compare_all(which);
    }
    if (!quiet) {
        printf("seed %lu: %lu operations on %d path%s agree:", (unsigned long)seed, operations,
               path_count, path_count > 1 ? "s" : "");
        for (size_t kind = 0; kind < KINDS; kind++)
            printf(" %s %lu", kinds[kind].name, counts[kind]);
        printf("\n");
    }
    return 0;
}
