/*
 * ninefloor: the least that a 9P2000.L server of one thread can do for ninebench on this machine.
 *
 *   ninefloor PORT FILE
 *
 * Serves one client after another at 127.0.0.1: a blocking socket, one buffer each way, no checks, no fids, no
 * users, one file for every name. Every request costs the system calls that answer it, and answers leave together,
 * 128 KiB at a time; reads of 16 KiB and more are sent with sendfile. What another server takes longer is its
 * own; what this one takes is the kernel's.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MSIZE = (1 << 20) + 4096,
    HEADER = 7,
    RREAD_HEADER = HEADER + 4,
    SEND_BYTES = 128 << 10,
    SENDFILE_MIN = 16 << 10,
    TLOPEN = 12, TGETATTR = 24, TVERSION = 100, TATTACH = 104, TWALK = 110, TREAD = 116, TWRITE = 118, TCLUNK = 120,
};

static uint8_t in[4 * MSIZE], out[SEND_BYTES + 2 * MSIZE];
static size_t out_bytes;

static void fail(const char *what) {
    fprintf(stderr, "ninefloor: cannot %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t take(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    memcpy(&value, at, (size_t)bytes); /* As the wire has it: little-endian machines only. */
    return value;
}

static int send_out(int sock, int flags) {
    for (size_t at = 0; at < out_bytes;) {
        ssize_t count = send(sock, out + at, out_bytes - at, flags | MSG_NOSIGNAL);
        if (count <= 0) {
            return -1;
        }
        at += (size_t)count;
    }
    out_bytes = 0;
    return 0;
}

/* Ends a reply whose body has `bytes` bytes. */
static void put_header(uint8_t *reply, const uint8_t *request, uint32_t bytes) {
    uint32_t size = HEADER + bytes;
    memcpy(reply, &size, 4);
    reply[4] = request[4] + 1;
    memcpy(reply + 5, request + 5, 2);
}

static int read_reply(int sock, int file, const uint8_t *request) {
    off_t offset = (off_t)take(request + 11, 8);
    uint32_t count = (uint32_t)take(request + 19, 4);
    uint8_t *reply = out + out_bytes;
    if (count < SENDFILE_MIN) {
        ssize_t got = pread(file, reply + RREAD_HEADER, count, offset);
        count = got > 0 ? (uint32_t)got : 0;
    }
    memcpy(reply + HEADER, &count, 4);
    put_header(reply, request, 4 + count);
    if (count < SENDFILE_MIN) {
        out_bytes += RREAD_HEADER + count;
        return 0;
    }
    out_bytes += RREAD_HEADER;
    if (send_out(sock, MSG_MORE) != 0) {
        return -1;
    }
    while (count > 0) {
        ssize_t sent = sendfile(sock, file, &offset, count);
        if (sent <= 0) {
            return -1;
        }
        count -= (uint32_t)sent;
    }
    return 0;
}

static int answer(int sock, int file, const uint8_t *request) {
    uint8_t *reply = out + out_bytes, *body = reply + HEADER;
    uint32_t bytes = 0;
    struct stat found;
    switch (request[4]) {
    case TREAD:
        return read_reply(sock, file, request);
    case TWRITE: {
        uint32_t count = (uint32_t)take(request + 19, 4);
        ssize_t put = pwrite(file, request + 23, count, (off_t)take(request + 11, 8));
        count = put > 0 ? (uint32_t)put : 0;
        memcpy(body, &count, bytes = 4);
        break;
    }
    case TVERSION:
        bytes = (uint32_t)take(request, 4) - HEADER;
        memcpy(body, request + HEADER, bytes);
        if (take(body, 4) > MSIZE) {
            memcpy(body, &(uint32_t){MSIZE}, 4);
        }
        break;
    case TWALK:
        memset(body, 0, bytes = 2 + 13 * (uint32_t)take(request + 15, 2));
        memcpy(body, request + 15, 2);
        break;
    case TGETATTR:
        /* valid[8] qid[13] mode[4] uid[4] gid[4] nlink[8] rdev[8] size[8], then what nobody asks for */
        memset(body, 0, bytes = 153);
        if (fstat(file, &found) == 0) {
            memcpy(body + 49, &(uint64_t){(uint64_t)found.st_size}, 8);
        }
        break;
    case TATTACH:
    case TLOPEN:
        memset(body, 0, bytes = request[4] == TATTACH ? 13 : 17);
        break;
    case TCLUNK:
        break;
    default:
        return -1;
    }
    put_header(reply, request, bytes);
    out_bytes += HEADER + bytes;
    return 0;
}

static void serve(int sock, int file) {
    size_t there = 0;
    out_bytes = 0;
    for (;;) {
        ssize_t count = read(sock, in + there, sizeof in - there);
        size_t at = 0;
        if (count <= 0) {
            return;
        }
        there += (size_t)count;
        for (uint64_t size; there - at >= HEADER && there - at >= (size = take(in + at, 4)); at += size) {
            if (size < HEADER || answer(sock, file, in + at) != 0
                || (out_bytes >= SEND_BYTES && send_out(sock, 0) != 0)) {
                return;
            }
        }
        if (send_out(sock, 0) != 0) {
            return;
        }
        memmove(in, in + at, there - at);
        there -= at;
    }
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: the head of ninefloor.c\n");
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1])),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int file = open(argv[2], O_RDWR), listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (file < 0) {
        fail("open the file");
    }
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 8) != 0) {
        fail("listen");
    }
    for (;;) {
        int sock = accept(listener, NULL, NULL);
        if (sock < 0) {
            fail("accept");
        }
        setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        serve(sock, file);
        close(sock);
    }
}
