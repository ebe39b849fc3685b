// Round trips of messages between two nodes: `wire serve ADDRESS PORT`, `wire ping ADDRESS PORT BYTES SECONDS`.
//
// A message of BYTES goes to the server and as many come back; the next one leaves 200 us after the answer. Standard output has one
// line: messages, seconds, and the round trip's median, 99th and 99.9th percentile in microseconds.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char buffer[1 << 20];

static void die(const char *what) {
    fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static int all(int fd, size_t bytes, int is_write) {
    for (size_t done = 0; done < bytes;) {
        ssize_t count = is_write ? write(fd, buffer, bytes - done) : read(fd, buffer, bytes - done);
        if (count <= 0) return -1;
        done += count;
    }
    return 0;
}

static int by_time(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void prepare(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static struct sockaddr_in address(char **words) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    if (inet_pton(AF_INET, words[0], &to.sin_addr) != 1) die(words[0]);
    return to;
}

// The client says first how long its messages are.
static void serve(char **words) {
    struct sockaddr_in at = address(words);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 4)) die("listen");
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        unsigned bytes;
        prepare(fd);
        if (read(fd, &bytes, sizeof bytes) == sizeof bytes && bytes <= sizeof buffer)
            while (!all(fd, bytes, 0) && !all(fd, bytes, 1)) {}
        close(fd);
    }
}

static void ping(char **words) {
    struct sockaddr_in to = address(words);
    unsigned bytes = atoi(words[2]);
    double seconds = atof(words[3]), *trips = malloc(sizeof *trips * 1000000);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (void *)&to, sizeof to)) die("connect");
    prepare(fd);
    if (write(fd, &bytes, sizeof bytes) != sizeof bytes) die("write");
    // The first ones are TCP's slow start.
    for (int count = 0; count < 20; count++)
        if (all(fd, bytes, 1) || all(fd, bytes, 0)) die("ping");
    size_t count = 0;
    double begun = now();
    while (now() - begun < seconds && count < 1000000) {
        double sent = now();
        if (all(fd, bytes, 1) || all(fd, bytes, 0)) die("ping");
        trips[count++] = now() - sent;
        usleep(200);
    }
    double took = now() - begun;
    qsort(trips, count, sizeof *trips, by_time);
    printf("%zu %.3f %.0f %.0f %.0f\n", count, took, trips[count / 2] * 1e6, trips[count * 99 / 100] * 1e6,
           trips[count * 999 / 1000] * 1e6);
}

int main(int count, char **words) {
    if (count == 4 && !strcmp(words[1], "serve")) serve(words + 2);
    else if (count == 6 && !strcmp(words[1], "ping")) ping(words + 2);
    else return fprintf(stderr, "wire serve ADDRESS PORT | wire ping ADDRESS PORT BYTES SECONDS\n"), 2;
    return 0;
}
