/*
 * fusering: what a FUSE request costs over io_uring, and over /dev/fuse.
 *
 *   fusering WAY SERVER-CPU CALLER-CPU CALLERS SECONDS
 *
 * A file system of one file, served by one thread and mounted in a directory of its own; each caller repeats fstat(2), of
 * which the kernel keeps nothing, so each is a GETATTR. WAY is how the server gets its requests:
 *
 *   device      epoll_wait, read and writev on /dev/fuse, and a read that finds nothing, as a server does that has
 *               connections to look after
 *   ring-epoll  a ring with a queue for each CPU, whose descriptor is polled beside the connections
 *   ring        a ring that is waited for itself: answer and wait are one system call
 *
 * A CPU of -1 leaves the choice to the scheduler. Prints thousands of calls a second, and microseconds of CPU per call of
 * the server and of the callers. Needs root, and for the ring /sys/module/fuse/parameters/enable_uring set to Y.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Debian 12's <linux/fuse.h> is older than the ring. */
enum { RING_REGISTER = 1, RING_COMMIT_AND_FETCH = 2 };
#define INIT_OVER_RING (1ULL << 41)

struct ring_entry {
    uint64_t flags, commit_id;
    uint32_t payload_bytes, padding;
    uint64_t reserved;
};

struct ring_header {
    char in_out[128], op_in[128];
    struct ring_entry entry;
};

struct ring_command {
    uint64_t flags, commit_id;
    uint16_t queue;
    uint8_t padding[6];
};

enum { DEPTH = 8, QUEUES_MAX = 256, PAYLOAD_BYTES = 1 << 20, HEADER_ROOM = 4096, FILE_ID = 2, CALLERS_MAX = 64 };

static void fail(const char *what) {
    fprintf(stderr, "fusering: cannot %s: %s\n", what, strerror(errno));
    exit(1);
}

static void run_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (cpu >= 0 && sched_setaffinity(0, sizeof set, &set) < 0) {
        fail("bind to the CPU");
    }
}

/* The answer to a request: its bytes, or a negative errno. */
static int answer(const struct fuse_in_header *header, const char *name, void *out) {
    struct fuse_attr attr = {.ino = header->nodeid, .nlink = 1, .blksize = 4096};
    attr.mode = header->nodeid == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644;
    switch (header->opcode) {
    case FUSE_LOOKUP: {
        struct fuse_entry_out entry = {.nodeid = FILE_ID, .generation = 1, .attr = attr};
        if (strcmp(name, "f") != 0) {
            return -ENOENT;
        }
        entry.attr.ino = FILE_ID;
        entry.attr.mode = S_IFREG | 0644;
        memcpy(out, &entry, sizeof entry);
        return sizeof entry;
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out got = {.attr = attr};
        memcpy(out, &got, sizeof got);
        return sizeof got;
    }
    case FUSE_OPEN: {
        struct fuse_open_out opened = {0};
        memcpy(out, &opened, sizeof opened);
        return sizeof opened;
    }
    case FUSE_FLUSH:
    case FUSE_RELEASE:
        return 0;
    default:
        return -ENOSYS;
    }
}

static int has_answer(uint32_t opcode) {
    return opcode != FUSE_FORGET && opcode != FUSE_BATCH_FORGET && opcode != FUSE_INTERRUPT;
}

/* Answers INIT; asks for the ring where that is wanted. The flags lie where version 7.36 put them. */
static int begin(const struct fuse_init_in *in, int over_ring, void *out) {
    uint64_t flags = FUSE_INIT_EXT | FUSE_MAX_PAGES | FUSE_BIG_WRITES | (over_ring ? INIT_OVER_RING : 0);
    struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = in->minor, .max_write = PAYLOAD_BYTES};
    init.max_pages = PAYLOAD_BYTES / 4096;
    init.flags = (uint32_t)flags;
    memcpy(out, &init, sizeof init);
    uint32_t high = (uint32_t)(flags >> 32);
    memcpy((char *)out + 32, &high, sizeof high);
    return sizeof init;
}

/* One request from the device; 0 where there is none. */
static int serve_device(int device, int over_ring, int *began) {
    static char in[PAYLOAD_BYTES + 8192], out[4096];
    ssize_t count = read(device, in, sizeof in);
    if (count < 0) {
        if (errno == ENODEV) {
            exit(0);
        }
        if (errno == EINTR || errno == ENOENT) {
            return 1;
        }
        if (errno == EAGAIN) {
            return 0;
        }
        fail("read the device");
    }
    const struct fuse_in_header *header = (const void *)in;
    if (!has_answer(header->opcode)) {
        return 1;
    }
    struct fuse_out_header reply = {.unique = header->unique};
    char *body = out + sizeof reply;
    const char *argument = in + sizeof *header;
    int bytes = header->opcode == FUSE_INIT ? begin((const void *)argument, over_ring, body) : answer(header, argument, body);
    reply.error = bytes < 0 ? bytes : 0;
    reply.len = (uint32_t)(sizeof reply + (bytes > 0 ? (size_t)bytes : 0));
    memcpy(out, &reply, sizeof reply);
    struct iovec piece = {out, reply.len};
    if (writev(device, &piece, 1) < 0 && errno != ENOENT) {
        fail("answer");
    }
    *began = *began || header->opcode == FUSE_INIT;
    return 1;
}

/* The ring, and the memory of its entries. */
static struct {
    int fd, device;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_cqe *cqes;
    char *sqes, *headers, *payloads;
    struct iovec areas[QUEUES_MAX * DEPTH][2];
    unsigned pending;
} ring;

static void push(unsigned command, unsigned entry, uint64_t commit_id) {
    unsigned tail = *ring.sq_tail, at = tail & *ring.sq_mask;
    struct io_uring_sqe *sqe = (void *)(ring.sqes + 128 * at);
    memset(sqe, 0, 128);
    sqe->opcode = IORING_OP_URING_CMD;
    sqe->fd = ring.device;
    sqe->cmd_op = command;
    sqe->user_data = entry;
    if (command == RING_REGISTER) {
        sqe->addr = (uint64_t)(uintptr_t)ring.areas[entry];
        sqe->len = 2;
    }
    struct ring_command body = {.commit_id = commit_id, .queue = (uint16_t)(entry / DEPTH)};
    memcpy(sqe->cmd, &body, sizeof body);
    ring.sq_array[at] = at;
    __atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
    ring.pending++;
}

static void enter(unsigned least) {
    unsigned flags = least ? IORING_ENTER_GETEVENTS : 0;
    if (syscall(__NR_io_uring_enter, ring.fd, ring.pending, least, flags, NULL, 0) < 0 && errno != EINTR) {
        fail("enter the ring");
    }
    ring.pending = 0;
}

static void open_ring(int device) {
    int queues = (int)sysconf(_SC_NPROCESSORS_CONF), entries = queues * DEPTH;
    if (queues > QUEUES_MAX) {
        errno = ENOSPC;
        fail("have a queue for each CPU");
    }
    unsigned slots = 1;
    while (slots < (unsigned)entries) {
        slots *= 2;
    }
    struct io_uring_params params = {0};
    params.flags = IORING_SETUP_SQE128 | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    ring.device = device;
    ring.fd = (int)syscall(__NR_io_uring_setup, slots, &params);
    if (ring.fd < 0) {
        fail("set up a ring");
    }
    size_t sq_bytes = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    size_t cq_bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    int access = PROT_READ | PROT_WRITE, shared = MAP_SHARED | MAP_POPULATE, own = MAP_PRIVATE | MAP_ANONYMOUS;
    char *both = mmap(NULL, sq_bytes > cq_bytes ? sq_bytes : cq_bytes, access, shared, ring.fd, IORING_OFF_SQ_RING);
    ring.sqes = mmap(NULL, params.sq_entries * 128, access, shared, ring.fd, IORING_OFF_SQES);
    ring.headers = mmap(NULL, (size_t)entries * HEADER_ROOM, access, own | MAP_POPULATE, -1, 0);
    ring.payloads = mmap(NULL, (size_t)entries * PAYLOAD_BYTES, access, own, -1, 0);
    if (both == MAP_FAILED || ring.sqes == MAP_FAILED || ring.headers == MAP_FAILED || ring.payloads == MAP_FAILED) {
        fail("map the ring");
    }
    ring.sq_tail = (void *)(both + params.sq_off.tail);
    ring.sq_mask = (void *)(both + params.sq_off.ring_mask);
    ring.sq_array = (void *)(both + params.sq_off.array);
    ring.cq_head = (void *)(both + params.cq_off.head);
    ring.cq_tail = (void *)(both + params.cq_off.tail);
    ring.cq_mask = (void *)(both + params.cq_off.ring_mask);
    ring.cqes = (void *)(both + params.cq_off.cqes);
    for (unsigned at = 0; at < (unsigned)entries; at++) {
        ring.areas[at][0] = (struct iovec){ring.headers + (size_t)at * HEADER_ROOM, sizeof(struct ring_header)};
        ring.areas[at][1] = (struct iovec){ring.payloads + (size_t)at * PAYLOAD_BYTES, PAYLOAD_BYTES};
        push(RING_REGISTER, at, 0);
    }
    enter(0);
}

/* Answers all requests that are in the ring; how many those were. */
static int serve_ring(void) {
    unsigned head = *ring.cq_head, first = head;
    while (head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE)) {
        const struct io_uring_cqe *cqe = &ring.cqes[head & *ring.cq_mask];
        if (cqe->res < 0) {
            if (cqe->res == -ENOTCONN || cqe->res == -ECANCELED) {
                exit(0);
            }
            errno = -cqe->res;
            fail("get a request from the ring");
        }
        unsigned entry = (unsigned)cqe->user_data;
        struct ring_header *slot = ring.areas[entry][0].iov_base;
        struct fuse_in_header header;
        char name[256];
        memcpy(&header, slot->in_out, sizeof header);
        memcpy(name, ring.areas[entry][1].iov_base, sizeof name);
        int bytes = answer(&header, name, ring.areas[entry][1].iov_base);
        struct fuse_out_header reply = {.unique = header.unique, .error = bytes < 0 ? bytes : 0};
        slot->entry.payload_bytes = bytes > 0 ? (uint32_t)bytes : 0;
        reply.len = (uint32_t)sizeof reply + slot->entry.payload_bytes;
        memcpy(slot->in_out, &reply, sizeof reply);
        push(RING_COMMIT_AND_FETCH, entry, slot->entry.commit_id);
        head++;
    }
    __atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
    return (int)(head - first);
}

static void serve(int device, const char *way) {
    int over_ring = strcmp(way, "device") != 0, polls = strcmp(way, "ring") != 0, began = 0;
    int poller = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = device};
    if (poller < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, device, &event) < 0) {
        fail("poll the device");
    }
    for (;;) {
        if (began && over_ring && !polls) {
            serve_ring();
            enter(1);
            continue;
        }
        if (epoll_wait(poller, &event, 1, -1) < 0 && errno != EINTR) {
            fail("wait");
        }
        if (event.data.fd != device) {
            while (serve_ring()) {
                enter(0);
            }
            continue;
        }
        int had = began;
        while (serve_device(device, over_ring, &began)) {
        }
        if (event.events & EPOLLERR) {
            exit(0);
        }
        if (began && !had && over_ring) {
            open_ring(device);
            struct epoll_event more = {.events = EPOLLIN | EPOLLET, .data.fd = ring.fd};
            if (epoll_ctl(poller, EPOLL_CTL_ADD, ring.fd, &more) < 0) {
                fail("poll the ring");
            }
        }
    }
}

static double cpu_of(const struct rusage *usage) {
    double micros = (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
    return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) + micros / 1e6;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* A caller; writes its calls and its CPU time. */
static void call(int file, double until, int out) {
    struct stat status;
    double said[2] = {0, 0};
    while (now() < until) {
        for (int at = 0; at < 100; at++) {
            if (fstat(file, &status) < 0) {
                fail("fstat");
            }
        }
        said[0] += 100;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    said[1] = cpu_of(&usage);
    if (write(out, said, sizeof said) != sizeof said) {
        fail("say what it took");
    }
    exit(0);
}

int main(int count, char **words) {
    if (count != 6) {
        fprintf(stderr, "usage: fusering device|ring-epoll|ring SERVER-CPU CALLER-CPU CALLERS SECONDS\n");
        return 2;
    }
    int callers = atoi(words[4]), tell[2];
    double seconds = atof(words[5]);
    if (callers < 1 || callers > CALLERS_MAX) {
        fprintf(stderr, "fusering: 1 to %d callers, not %s\n", CALLERS_MAX, words[4]);
        return 2;
    }
    char directory[] = "/tmp/fusering-XXXXXX", options[100], path[100];
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (device < 0 || !mkdtemp(directory)) {
        fail("open /dev/fuse");
    }
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (mount("fusering", directory, "fuse", 0, options) < 0) {
        fail("mount");
    }
    pid_t server = fork();
    if (server == 0) {
        run_on(atoi(words[2]));
        serve(device, words[1]);
    }
    close(device);
    snprintf(path, sizeof path, "%s/f", directory);
    int file = open(path, O_RDONLY);
    if (file < 0 || pipe(tell) < 0) {
        umount2(directory, MNT_DETACH);
        fail("open the file");
    }
    double begun = now(), calls = 0, cpu = 0;
    for (int at = 0; at < callers; at++) {
        if (fork() == 0) {
            run_on(callers == 1 ? atoi(words[3]) : -1);
            call(file, begun + seconds, tell[1]);
        }
    }
    for (int at = 0; at < callers; at++) {
        double said[2];
        if (read(tell[0], said, sizeof said) != sizeof said) {
            fail("hear from a caller");
        }
        calls += said[0];
        cpu += said[1];
    }
    double took = now() - begun;
    close(file);
    umount2(directory, MNT_DETACH);
    struct rusage usage;
    if (wait4(server, NULL, 0, &usage) < 0) {
        fail("wait for the server");
    }
    rmdir(directory);
    printf("%.1f %.2f %.2f\n", calls / took / 1e3, cpu_of(&usage) / calls * 1e6, cpu / calls * 1e6);
    return 0;
}
