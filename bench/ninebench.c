/*
 * ninebench: one figure of a 9P2000.L server per run, whichever server it is.
 *
 *   ninebench HOST PORT ANAME FILE getattr|walk|read|write BYTES DEPTH SECONDS
 *
 * Attaches ANAME as the user who runs it, walks to FILE (one name), opens it, and keeps DEPTH
 * requests of the kind in flight: Tgetattr of it, Twalk to it with the Tclunk that follows, Tread or
 * Twrite of BYTES (fewer if the server's msize is small) at random offsets that are multiples of it.
 * Requests go out together when several answers came together. Prints `OPERATIONS BYTES SECONDS CPU_SECONDS`.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MSIZE = 1 << 20,
    HEADER = 7,
    NOTAG = 0xffff,
    DEPTH_MAX = 256,
    RLERROR = 7, TLOPEN = 12, TGETATTR = 24, TVERSION = 100, TATTACH = 104, TWALK = 110, TREAD = 116,
    TWRITE = 118, TCLUNK = 120,
    ROOT_FID = 0, FILE_FID = 1, WALK_FID = 100, /* one more per tag */
};

static int sock;
static uint8_t *out, *in;
static size_t out_bytes, in_bytes;
static uint64_t random_state = 88172645463325252u;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "ninebench: cannot %s: %s\n", what, why);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Integers are little-endian on the wire, whatever they are here. */
static void put(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) {
        out[out_bytes++] = (uint8_t)(value >> (8 * i));
    }
}

static uint64_t take(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

static void put_string(const char *text) {
    size_t length = strlen(text);
    put(length, 2);
    memcpy(out + out_bytes, text, length);
    out_bytes += length;
}

static size_t begin(uint8_t type, uint16_t tag) {
    size_t start = out_bytes;
    put(0, 4);
    put(type, 1);
    put(tag, 2);
    return start;
}

static void end(size_t start) {
    size_t whole = out_bytes;
    out_bytes = start;
    put(whole - start, 4);
    out_bytes = whole;
}

static void flush_out(void) {
    for (size_t at = 0; at < out_bytes;) {
        ssize_t count = write(sock, out + at, out_bytes - at);
        if (count <= 0) {
            fail("send", strerror(errno));
        }
        at += (size_t)count;
    }
    out_bytes = 0;
}

/* Reads until at least one whole message is there. */
static size_t message_bytes(void) {
    for (;;) {
        if (in_bytes >= HEADER && in_bytes >= take(in, 4)) {
            return take(in, 4);
        }
        ssize_t count = read(sock, in + in_bytes, 4 * MSIZE - in_bytes);
        if (count <= 0) {
            fail("receive", count == 0 ? "the server hung up" : strerror(errno));
        }
        in_bytes += (size_t)count;
    }
}

static void drop_message(size_t bytes) {
    memmove(in, in + bytes, in_bytes - bytes);
    in_bytes -= bytes;
}

static void check(const uint8_t *message, uint8_t type) {
    if (message[4] == RLERROR) {
        char what[40];
        snprintf(what, sizeof what, "do T-message %d", type);
        fail(what, strerror((int)take(message + HEADER, 4)));
    }
    if (message[4] != type + 1) {
        fail("go on", "an answer of another type");
    }
}

/* Sends the one message that was put, and waits for its answer, which stays at `in`. */
static size_t call(uint8_t type) {
    flush_out();
    size_t bytes = message_bytes();
    check(in, type);
    return bytes;
}

static void dial(const char *host, const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int one = 1;
    sock = socket(AF_INET, SOCK_STREAM, 0);
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1
        || connect(sock, (struct sockaddr *)&address, sizeof address) != 0) {
        fail("connect", strerror(errno));
    }
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* Answers the message size that the server agrees to. */
static uint32_t attach(const char *aname, const char *file) {
    size_t start = begin(TVERSION, NOTAG);
    put(MSIZE, 4);
    put_string("9P2000.L");
    end(start);
    size_t bytes = call(TVERSION);
    uint32_t msize = (uint32_t)take(in + HEADER, 4);
    drop_message(bytes);
    start = begin(TATTACH, 0);
    put(ROOT_FID, 4);
    put(0xffffffff, 4);
    put_string("");
    put_string(aname);
    put(geteuid(), 4);
    end(start);
    drop_message(call(TATTACH));
    start = begin(TWALK, 0);
    put(ROOT_FID, 4);
    put(FILE_FID, 4);
    put(1, 2);
    put_string(file);
    end(start);
    drop_message(call(TWALK));
    start = begin(TLOPEN, 0);
    put(FILE_FID, 4);
    put(2, 4); /* O_RDWR */
    end(start);
    drop_message(call(TLOPEN));
    return msize;
}

static uint64_t file_bytes(void) {
    size_t start = begin(TGETATTR, 0);
    put(FILE_FID, 4);
    put(0x7ff, 8);
    end(start);
    size_t bytes = call(TGETATTR);
    /* valid[8] qid[13] mode[4] uid[4] gid[4] nlink[8] rdev[8] size[8] */
    uint64_t size = take(in + HEADER + 8 + 13 + 4 + 4 + 4 + 8 + 8, 8);
    drop_message(bytes);
    return size;
}

static void request(uint8_t type, uint16_t tag, const char *file, uint32_t bytes, uint64_t places) {
    size_t start = begin(type, tag);
    switch (type) {
    case TGETATTR:
        put(FILE_FID, 4);
        put(0x7ff, 8);
        break;
    case TWALK:
        put(ROOT_FID, 4);
        put(WALK_FID + tag, 4);
        put(1, 2);
        put_string(file);
        break;
    case TCLUNK:
        put(WALK_FID + tag, 4);
        break;
    default:
        put(FILE_FID, 4);
        put(next_random() % places * bytes, 8);
        put(bytes, 4);
        if (type == TWRITE) {
            memset(out + out_bytes, (int)tag + 1, bytes);
            out_bytes += bytes;
        }
    }
    end(start);
}

int main(int argc, char **argv) {
    if (argc != 9) {
        fprintf(stderr, "usage: the head of ninebench.c\n");
        return 2;
    }
    const char *file = argv[4], *test = argv[5];
    uint8_t type = strcmp(test, "getattr") == 0 ? TGETATTR
                   : strcmp(test, "walk") == 0  ? TWALK
                   : strcmp(test, "read") == 0  ? TREAD
                                                : TWRITE;
    uint32_t bytes = (uint32_t)atol(argv[6]);
    int depth = atoi(argv[7]);
    double seconds = atof(argv[8]);
    if (depth < 1 || depth > DEPTH_MAX || bytes > MSIZE - 64) {
        fail("start", "DEPTH or BYTES is out of range");
    }
    out = malloc((size_t)(depth + 1) * (bytes + 512) + MSIZE);
    in = malloc(4 * MSIZE);
    dial(argv[1], argv[2]);
    uint32_t msize = attach(argv[3], file);
    if (bytes > msize - 24) {
        /* Whole pages of what the server takes; the rate in bytes stays comparable. */
        bytes = (msize - 24) / 4096 * 4096;
    }
    uint64_t places = bytes > 0 ? file_bytes() / bytes : 1, operations = 0;
    if (places == 0) {
        fail("start", "the file is smaller than one request");
    }
    double begun = now(), until = begun + seconds;
    for (int tag = 0; tag < depth; tag++) {
        request(type, (uint16_t)tag, file, bytes, places);
    }
    for (int in_flight = depth; in_flight > 0;) {
        flush_out();
        message_bytes();
        int is_over = now() >= until;
        size_t at = 0;
        while (in_bytes - at >= HEADER && in_bytes - at >= take(in + at, 4)) {
            uint8_t answer = in[at + 4];
            uint16_t tag = (uint16_t)take(in + at + 5, 2);
            int was_walk = type == TWALK && answer == TWALK + 1;
            check(in + at, type == TWALK && !was_walk ? TCLUNK : type);
            if (type == TREAD && take(in + at + HEADER, 4) != bytes) {
                fail("read", "fewer bytes than asked");
            }
            at += take(in + at, 4);
            if (was_walk) {
                request(TCLUNK, tag, file, bytes, places);
                continue;
            }
            operations++;
            if (is_over) {
                in_flight--;
            } else {
                request(type, tag, file, bytes, places);
            }
        }
        drop_message(at);
    }
    struct rusage usage;
    double took = now() - begun;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
                 + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    printf("%llu %llu %.6f %.6f\n", (unsigned long long)operations,
           (unsigned long long)(operations * bytes), took, cpu);
    return 0;
}
