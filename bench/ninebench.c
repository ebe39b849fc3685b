/*
 * ninebench: one figure of a 9P2000.L server per run, whichever server it is.
 *
 *   ninebench HOST PORT ANAME FILE getattr|walk|read|write BYTES DEPTH SECONDS
 *
 * Attaches ANAME as the user who runs it, walks to FILE (one name), opens it, and keeps DEPTH
 * requests of the kind in flight: Tgetattr of it, Twalk to it with the Tclunk that follows, Tread or
 * Twrite of BYTES (fewer if the server's msize is small) at random offsets that are multiples of it.
 * Requests go out together when several answers came together, and what is received or written is not
 * copied or filled here, so that the server is what is measured. Prints `OPERATIONS BYTES SECONDS CPU_SECONDS`.
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
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    MSIZE = 1 << 20,
    HEADER = 7,
    IN_BYTES = 4 * MSIZE,
    RECEIVE_BYTES = 128 << 10,
    NOTAG = 0xffff,
    DEPTH_MAX = 256,
    RLERROR = 7, TLOPEN = 12, TGETATTR = 24, TVERSION = 100, TATTACH = 104, TWALK = 110, TREAD = 116,
    TWRITE = 118, TCLUNK = 120,
    ROOT_FID = 0, FILE_FID = 1, WALK_FID = 100, /* one more per tag */
};

static int sock;
static uint8_t *out, *in, *payload;
static size_t out_bytes, in_begin, in_end;
/* What is sent of `out` before each payload, and how much of that. */
static struct iovec pieces[2 * DEPTH_MAX + 1];
static int piece_count;
static size_t out_sealed;
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

/* `after`: bytes of payload that follow. */
static void end(size_t start, size_t after) {
    size_t whole = out_bytes;
    out_bytes = start;
    put(whole - start + after, 4);
    out_bytes = whole;
}

/* What was put since the last piece becomes a piece. */
static void seal(void) {
    if (out_bytes > out_sealed) {
        pieces[piece_count++] = (struct iovec){out + out_sealed, out_bytes - out_sealed};
        out_sealed = out_bytes;
    }
}

static void put_payload(uint32_t bytes) {
    seal();
    pieces[piece_count++] = (struct iovec){payload, bytes};
}

static void flush_out(void) {
    seal();
    for (int first = 0; first < piece_count;) {
        ssize_t count = writev(sock, pieces + first, piece_count - first);
        if (count <= 0) {
            fail("send", strerror(errno));
        }
        while (first < piece_count && (size_t)count >= pieces[first].iov_len) {
            count -= (ssize_t)pieces[first++].iov_len;
        }
        if (first < piece_count) {
            pieces[first].iov_base = (uint8_t *)pieces[first].iov_base + count;
            pieces[first].iov_len -= (size_t)count;
        }
    }
    out_bytes = out_sealed = 0;
    piece_count = 0;
}

/* Length of the whole message at the front of what has been received; 0 while it is not all there. */
static size_t message_there(void) {
    size_t there = in_end - in_begin;
    return there >= HEADER && there >= take(in + in_begin, 4) ? take(in + in_begin, 4) : 0;
}

/*
 * Receives until at least one whole message is there, and answers its length. Not more than RECEIVE_BYTES at once:
 * the next requests are on their way while the rest of the answers is taken in.
 */
static size_t message_bytes(void) {
    while (message_there() == 0) {
        /* Memory that is used again and again stays in the caches; a part of a message is moved seldom. */
        if (in_begin == in_end || in_begin > IN_BYTES / 2) {
            memmove(in, in + in_begin, in_end - in_begin);
            in_end -= in_begin;
            in_begin = 0;
        }
        ssize_t count = read(sock, in + in_end, RECEIVE_BYTES);
        if (count <= 0) {
            fail("receive", count == 0 ? "the server hung up" : strerror(errno));
        }
        in_end += (size_t)count;
    }
    return message_there();
}

static void drop_message(size_t bytes) {
    in_begin += bytes;
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

/* Sends the one message that was put, and waits for its answer, which is then the next in `in`. */
static size_t call(uint8_t type) {
    flush_out();
    size_t bytes = message_bytes();
    check(in + in_begin, type);
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
    end(start, 0);
    size_t bytes = call(TVERSION);
    uint32_t msize = (uint32_t)take(in + in_begin + HEADER, 4);
    drop_message(bytes);
    start = begin(TATTACH, 0);
    put(ROOT_FID, 4);
    put(0xffffffff, 4);
    put_string("");
    put_string(aname);
    put(geteuid(), 4);
    end(start, 0);
    drop_message(call(TATTACH));
    start = begin(TWALK, 0);
    put(ROOT_FID, 4);
    put(FILE_FID, 4);
    put(1, 2);
    put_string(file);
    end(start, 0);
    drop_message(call(TWALK));
    start = begin(TLOPEN, 0);
    put(FILE_FID, 4);
    put(2, 4); /* O_RDWR */
    end(start, 0);
    drop_message(call(TLOPEN));
    return msize;
}

static uint64_t file_bytes(void) {
    size_t start = begin(TGETATTR, 0);
    put(FILE_FID, 4);
    put(0x7ff, 8);
    end(start, 0);
    size_t bytes = call(TGETATTR);
    /* valid[8] qid[13] mode[4] uid[4] gid[4] nlink[8] rdev[8] size[8] */
    uint64_t size = take(in + in_begin + HEADER + 8 + 13 + 4 + 4 + 4 + 8 + 8, 8);
    drop_message(bytes);
    return size;
}

static void request(uint8_t type, uint16_t tag, const char *file, uint32_t bytes, uint64_t places) {
    size_t start = begin(type, tag), after = 0;
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
        after = type == TWRITE ? bytes : 0;
    }
    end(start, after);
    if (after > 0) {
        put_payload(bytes);
    }
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
    out = malloc((size_t)(depth + 1) * 512 + MSIZE);
    in = malloc(IN_BYTES);
    payload = malloc(bytes + 1);
    memset(payload, 'n', bytes + 1);
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
        for (size_t length; (length = message_there()) > 0; drop_message(length)) {
            const uint8_t *message = in + in_begin;
            uint16_t tag = (uint16_t)take(message + 5, 2);
            int was_walk = type == TWALK && message[4] == TWALK + 1;
            check(message, type == TWALK && !was_walk ? TCLUNK : type);
            if (type == TREAD && take(message + HEADER, 4) != bytes) {
                fail("read", "fewer bytes than asked");
            }
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
