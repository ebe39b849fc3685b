/*
 * fsbench: one figure of a file system, or of the machine below it, per run.
 *
 *   fsbench loopback BYTES                       TCP over 127.0.0.1, 1 MiB at a time
 *   fsbench write|overwrite|read FILE BYTES      1 MiB at a time; write makes the file anew
 *   fsbench write4k|read4k|reread4k FILE BYTES   4 KiB at a time, as the mount has it; write4k makes the
 *                                                file anew, reread4k has read all of it before
 *   fsbench randread|randwrite FILE BYTES SECONDS THREADS direct|buffered    4 KiB each
 *   fsbench create|stat|unlink DIR COUNT         empty files of one directory
 *   fsbench smallwrite|smallread DIR COUNT       files of 4 KiB: create and write, open and read
 *
 * Prints `OPERATIONS BYTES SECONDS CPU_SECONDS`, the last of this program alone. Reads begin with
 * what this client had cached dropped. No test ends before close(2) has returned; write and overwrite
 * end with fsync(2).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 1 << 20, PAGE = 4096, THREADS_MAX = 64 };

static void fail(const char *what, const char *path) {
    fprintf(stderr, "fsbench: cannot %s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double cpu_of(int who) {
    struct rusage usage;
    getrusage(who, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
           + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void report(uint64_t operations, uint64_t bytes, double seconds) {
    printf("%llu %llu %.6f %.6f\n", (unsigned long long)operations, (unsigned long long)bytes, seconds,
           cpu_of(RUSAGE_SELF) + cpu_of(RUSAGE_CHILDREN));
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Page-aligned, as O_DIRECT wants it, and not zero, so that nobody can take a short cut. */
static unsigned char *buffer_of(size_t bytes) {
    void *buffer;
    uint64_t state = 88172645463325252u;
    if (posix_memalign(&buffer, PAGE, bytes) != 0) {
        fail("allocate", "a buffer");
    }
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        uint64_t word = next_random(&state);
        memcpy((unsigned char *)buffer + at, &word, 8);
    }
    return buffer;
}

static int open_file(const char *path, int flags) {
    int fd = open(path, flags, 0644);
    if (fd < 0) {
        fail("open", path);
    }
    return fd;
}

static void send_all(int fd, const unsigned char *buffer, uint64_t bytes) {
    while (bytes > 0) {
        ssize_t count = write(fd, buffer, bytes < CHUNK ? bytes : CHUNK);
        if (count <= 0) {
            fail("send to", "loopback");
        }
        bytes -= (uint64_t)count;
    }
}

static void loopback(uint64_t bytes) {
    unsigned char *buffer = buffer_of(CHUNK), answer;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0
        || listen(listener, 1) != 0
        || getsockname(listener, (struct sockaddr *)&address, &length) != 0) {
        fail("listen at", "127.0.0.1");
    }
    pid_t child = fork();
    if (child == 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, length) != 0) {
            fail("connect to", "127.0.0.1");
        }
        send_all(fd, buffer, bytes);
        /* The receiver answers when it has everything: only then is it over. */
        _exit(read(fd, &answer, 1) == 1 ? 0 : 1);
    }
    int fd = accept(listener, NULL, NULL);
    uint64_t received = 0;
    double begun = now();
    while (received < bytes) {
        ssize_t count = read(fd, buffer, CHUNK);
        if (count <= 0) {
            fail("receive from", "loopback");
        }
        received += (uint64_t)count;
    }
    double seconds = now() - begun;
    int status;
    if (write(fd, "k", 1) != 1 || waitpid(child, &status, 0) != child || status != 0) {
        fail("end", "loopback");
    }
    report(bytes / CHUNK, bytes, seconds);
}

static void stream_out(const char *path, uint64_t bytes, int flags) {
    unsigned char *buffer = buffer_of(CHUNK);
    double begun = now();
    int fd = open_file(path, flags);
    for (uint64_t at = 0; at < bytes;) {
        ssize_t count = write(fd, buffer, CHUNK);
        if (count <= 0) {
            fail("write", path);
        }
        at += (uint64_t)count;
    }
    if (fsync(fd) != 0 || close(fd) != 0) {
        fail("write", path);
    }
    report(bytes / CHUNK, bytes, now() - begun);
}

static void drop_cache(int fd) {
    /* Dirty pages would stay. */
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static void stream_in(const char *path, uint64_t bytes) {
    unsigned char *buffer = buffer_of(CHUNK);
    uint64_t at = 0;
    int fd = open_file(path, O_RDONLY);
    drop_cache(fd);
    double begun = now();
    for (;;) {
        ssize_t count = read(fd, buffer, CHUNK);
        if (count < 0) {
            fail("read", path);
        }
        if (count == 0) {
            break;
        }
        at += (uint64_t)count;
    }
    if (at != bytes) {
        errno = EIO;
        fail("read all of", path);
    }
    close(fd);
    report(bytes / CHUNK, bytes, now() - begun);
}

static void pieces_out(const char *path, uint64_t bytes) {
    unsigned char *buffer = buffer_of(PAGE);
    double begun = now();
    int fd = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
    for (uint64_t at = 0; at < bytes; at += PAGE) {
        if (write(fd, buffer, PAGE) != PAGE) {
            fail("write", path);
        }
    }
    if (close(fd) != 0) {
        fail("write", path);
    }
    report(bytes / PAGE, bytes, now() - begun);
}

static void read_pieces(const char *path, int fd, uint64_t bytes) {
    static unsigned char buffer[PAGE];
    for (uint64_t at = 0; at < bytes; at += PAGE) {
        if (pread(fd, buffer, PAGE, (off_t)at) != PAGE) {
            fail("read", path);
        }
    }
}

static void pieces_in(const char *path, uint64_t bytes, int again) {
    int fd = open_file(path, O_RDONLY);
    drop_cache(fd);
    if (again) {
        read_pieces(path, fd, bytes);
        close(fd);
        fd = open_file(path, O_RDONLY);
    }
    double begun = now();
    read_pieces(path, fd, bytes);
    close(fd);
    report(bytes / PAGE, bytes, now() - begun);
}

struct job {
    const char *path;
    uint64_t pages, seed, operations;
    double until;
    int flags;
};

static void *hit(void *argument) {
    struct job *job = argument;
    unsigned char *buffer = buffer_of(PAGE);
    int fd = open_file(job->path, job->flags);
    while (now() < job->until) {
        /* A look at the clock costs little beside a system call, but not nothing. */
        for (int i = 0; i < 8; i++) {
            off_t at = (off_t)(next_random(&job->seed) % job->pages * PAGE);
            ssize_t count = (job->flags & O_ACCMODE) == O_RDONLY ? pread(fd, buffer, PAGE, at)
                                                                : pwrite(fd, buffer, PAGE, at);
            if (count != PAGE) {
                fail("reach", job->path);
            }
            job->operations++;
        }
    }
    if (close(fd) != 0) {
        fail("close", job->path);
    }
    return NULL;
}

static void random_access(const char *path, uint64_t bytes, double seconds, int threads, int flags) {
    pthread_t ids[THREADS_MAX];
    struct job jobs[THREADS_MAX];
    uint64_t operations = 0;
    if (threads < 1 || threads > THREADS_MAX || bytes < PAGE) {
        errno = EINVAL;
        fail("reach", path);
    }
    int fd = open_file(path, O_RDONLY);
    drop_cache(fd);
    double begun = now();
    for (int i = 0; i < threads; i++) {
        jobs[i] = (struct job){path, bytes / PAGE, 0x9e3779b97f4a7c15u * (uint64_t)(i + 1), 0,
                               begun + seconds, flags};
        if (pthread_create(&ids[i], NULL, hit, &jobs[i]) != 0) {
            fail("start a thread for", path);
        }
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        operations += jobs[i].operations;
    }
    double took = now() - begun;
    close(fd);
    report(operations, operations * PAGE, took);
}

static void each(const char *test, const char *dir, uint64_t count) {
    unsigned char *buffer = buffer_of(PAGE);
    char path[4096];
    int small = strncmp(test, "small", 5) == 0;
    if (strcmp(test, "create") == 0 || strcmp(test, "smallwrite") == 0) {
        if (mkdir(dir, 0755) != 0 && errno != EEXIST) {
            fail("make", dir);
        }
    }
    double begun = now();
    for (uint64_t i = 0; i < count; i++) {
        struct stat stat_buffer;
        snprintf(path, sizeof path, "%s/f%07llu", dir, (unsigned long long)i);
        if (strcmp(test, "stat") == 0) {
            if (stat(path, &stat_buffer) != 0) {
                fail("stat", path);
            }
        } else if (strcmp(test, "unlink") == 0) {
            if (unlink(path) != 0) {
                fail("unlink", path);
            }
        } else if (strcmp(test, "smallread") == 0) {
            int fd = open_file(path, O_RDONLY);
            if (read(fd, buffer, PAGE) != PAGE || close(fd) != 0) {
                fail("read", path);
            }
        } else {
            int fd = open_file(path, O_WRONLY | O_CREAT | O_EXCL);
            if ((small && write(fd, buffer, PAGE) != PAGE) || close(fd) != 0) {
                fail("write", path);
            }
        }
    }
    report(count, small ? count * PAGE : 0, now() - begun);
}

static int usage(void) {
    fprintf(stderr, "usage: fsbench TEST ...: the head of fsbench.c tells more\n");
    return 2;
}

int main(int argc, char **argv) {
    const char *test = argc > 1 ? argv[1] : "";
    if (strcmp(test, "loopback") == 0 && argc == 3) {
        loopback(strtoull(argv[2], NULL, 0));
    } else if (strncmp(test, "rand", 4) == 0 && argc == 7) {
        int flags = strcmp(test, "randread") == 0 ? O_RDONLY : O_WRONLY;
        flags |= strcmp(argv[6], "direct") == 0 ? O_DIRECT : 0;
        random_access(argv[2], strtoull(argv[3], NULL, 0), atof(argv[4]), atoi(argv[5]), flags);
    } else if (argc == 4) {
        uint64_t count = strtoull(argv[3], NULL, 0);
        if (strcmp(test, "write") == 0) {
            stream_out(argv[2], count, O_WRONLY | O_CREAT | O_TRUNC);
        } else if (strcmp(test, "overwrite") == 0) {
            stream_out(argv[2], count, O_WRONLY);
        } else if (strcmp(test, "write4k") == 0) {
            pieces_out(argv[2], count);
        } else if (strcmp(test, "read4k") == 0 || strcmp(test, "reread4k") == 0) {
            pieces_in(argv[2], count, test[2] == 'r');
        } else if (strcmp(test, "read") == 0) {
            stream_in(argv[2], count);
        } else if (strstr("create stat unlink smallwrite smallread", test) != NULL) {
            each(test, argv[2], count);
        } else {
            return usage();
        }
    } else {
        return usage();
    }
    return 0;
}
