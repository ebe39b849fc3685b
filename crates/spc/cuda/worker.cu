/*
 * A worker on a GPU, by docs/protocol/cell.md alone: it needs the shared memory and no library of Covey.
 *
 *   nvcc -shared -Xcompiler -fPIC -o worker.so worker.cu     covey cell run --alone worker.so
 *
 * The kernel is the worker: it writes 9P messages into its slots and polls for replies. It makes a region of memory, asks
 * where that lies, copies from there without a message, and writes to the log. The processor that has started it rings
 * the host's bell for it, which is a file and out of a device's reach.
 *
 * A plain C++ compiler (c++ -x c++) builds the same worker for the processor: so the code is tested where no device is.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <atomic>
#include <thread>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define DEVICE __device__
#define FENCE() __threadfence_system()
#else
#define DEVICE
#define FENCE() std::atomic_thread_fence(std::memory_order_seq_cst)
#endif

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

enum {
    Headers = 4096, HeadersMax = 1024, Boxes = 69632, BoxBytes = 266240, SlotBytes = 16384, Slots = 16, Line = 64,
    Requests = 0, Replies = 64, WorkerSleeps = 128, HostSleeps = 192, Access = 256, SlotsAt = 4096,
    Tlopen = 12, Tlcreate = 14, Tversion = 100, Tattach = 104, Twalk = 110, Twrite = 118, Tcall = 200, Rlerror = 7,
    NoTag = 0xffff, Tag = 1,
};

/* What the processor and the kernel tell each other, in memory that both reach. */
struct Mailroom {
    volatile u32 wants_bell;
    volatile u32 has_ended;
    volatile int error;
};

/* The worker's end of its box. */
struct Box {
    u8 *memory;
    /* Of it: what this worker has mapped. */
    u64 bytes;
    u32 worker, uid;
    u32 sent, taken;
    Mailroom *line;
    /* The message that is written or read, and the place in it. */
    volatile u8 *slot;
    u32 at;
};

DEVICE static volatile u32 *
word(Box *box, u64 at)
{
    return (volatile u32 *) (box->memory + at);
}

DEVICE static u64
box_at(Box *box)
{
    return Boxes + (u64) box->worker * BoxBytes;
}

DEVICE static void
put(Box *box, u64 value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        box->slot[box->at++] = (u8) (value >> 8 * i);
}

DEVICE static u64
take(Box *box, int bytes)
{
    u64 value = 0;

    for (int i = 0; i < bytes; i++)
        value |= (u64) box->slot[box->at++] << 8 * i;
    return value;
}

DEVICE static void
text(Box *box, const char *words)
{
    u32 bytes = 0;

    while (words[bytes])
        bytes++;
    put(box, bytes, 2);
    for (u32 i = 0; i < bytes; i++)
        put(box, words[i], 1);
}

/* Begins a message. One is on its way at a time, so the first slot is always free. */
DEVICE static void
begin(Box *box, int type, u16 tag)
{
    box->slot = box->memory + box_at(box) + SlotsAt;
    box->at = 4;
    put(box, type, 1);
    put(box, tag, 2);
}

/* Sends it, and waits for the answer: 0, or the number of an error. The place is behind its tag then. */
DEVICE static int
ask(Box *box)
{
    u32 bytes = box->at, reply, type;
    volatile u32 *place;

    box->at = 0;
    put(box, bytes, 4);
    FENCE();
    *word(box, box_at(box) + Requests + box->sent % Slots * 4) = ((box->sent / Slots + 1) & 0x3ff) << 18 | bytes;
    box->sent++;
    FENCE();
    if (*word(box, box_at(box) + HostSleeps))
        box->line->wants_bell = 1;
    place = word(box, box_at(box) + Replies + box->taken % Slots * 4);
    do
        reply = *place;
    while ((reply >> 18 & 0x3ff) != ((box->taken / Slots + 1) & 0x3ff));
    box->taken++;
    FENCE();
    box->at = 0;
    if (reply >> 28 != 0 || take(box, 4) != (reply & 0x3ffff))
        return 71; /* EPROTO */
    type = (u32) take(box, 1);
    take(box, 2);
    return type == Rlerror ? (int) take(box, 4) : 0;
}

DEVICE static int
walk(Box *box, u32 fid, const char *first, const char *second, const char *third)
{
    begin(box, Twalk, Tag);
    put(box, 0, 4);
    put(box, fid, 4);
    put(box, third ? 3 : 2, 2);
    text(box, first);
    text(box, second);
    if (third)
        text(box, third);
    return ask(box);
}

DEVICE static int
write(Box *box, u32 fid, u64 offset, const char *words)
{
    u32 bytes = 0;

    while (words[bytes])
        bytes++;
    begin(box, Twrite, Tag);
    put(box, fid, 4);
    put(box, offset, 8);
    put(box, bytes, 4);
    for (u32 i = 0; i < bytes; i++)
        put(box, words[i], 1);
    return ask(box);
}

/* Copies from a mapped file without a message; -1 where only the host can. */
DEVICE static int
copy(Box *box, u32 header, u32 epoch, u64 offset, u8 *to, u32 bytes)
{
    u64 at = Headers + (u64) header * Line, size, pointer, capacity;
    int done = -1;

    if (header >= HeadersMax)
        return -1;
    *word(box, box_at(box) + Access) = header + 1;
    FENCE();
    if (*word(box, at) % 2 == 0 && *word(box, at + 32) == epoch && *word(box, at + 4) == 0) {
        size = *(volatile u64 *) (box->memory + at + 8);
        pointer = *(volatile u64 *) (box->memory + at + 16);
        capacity = *(volatile u64 *) (box->memory + at + 24);
        if (size > capacity)
            size = capacity;
        /* All of it lies in the file, and in what is mapped here: the heap may go on behind that. */
        if (offset <= size && bytes <= size - offset && pointer <= box->bytes && offset <= box->bytes - pointer
            && bytes <= box->bytes - pointer - offset) {
            for (u32 i = 0; i < bytes; i++)
                to[i] = ((volatile u8 *) box->memory)[pointer + offset + i];
            done = (int) bytes;
        }
    }
    FENCE();
    *word(box, box_at(box) + Access) = 0;
    return done;
}

/* The program: a region is made, written by message, read without one, and what was read goes to the log. */
DEVICE static int
program(Box *box)
{
    enum { Root, Log, Region };
    char words[17] = { 0 };
    int error;
    u32 header, epoch;

    begin(box, Tversion, NoTag);
    put(box, SlotBytes, 4);
    text(box, "9P2000.L.covey2");
    if ((error = ask(box)))
        return error;
    begin(box, Tattach, Tag);
    put(box, Root, 4);
    put(box, 0xffffffff, 4);
    text(box, "");
    text(box, "/");
    put(box, box->uid, 4);
    if ((error = ask(box)))
        return error;
    if ((error = walk(box, Log, "cell", "l", "log")))
        return error;
    begin(box, Tlopen, Tag);
    put(box, Log, 4);
    put(box, 1, 4);
    if ((error = ask(box)))
        return error;
    if ((error = walk(box, Region, "cell", "r", 0)))
        return error;
    begin(box, Tlcreate, Tag);
    put(box, Region, 4);
    text(box, "device");
    put(box, 2, 4);
    put(box, 0644, 4);
    put(box, 0, 4);
    if ((error = ask(box)))
        return error;
    if ((error = write(box, Region, 0, "from the device\n")))
        return error;
    begin(box, Tcall, Tag);
    put(box, Region, 4);
    put(box, 8, 4);
    put(box, 1, 4);
    put(box, box->worker, 4);
    if ((error = ask(box)))
        return error;
    if (take(box, 4) != 12)
        return 71;
    header = (u32) take(box, 4);
    epoch = (u32) take(box, 4);
    if (take(box, 4) != 0 || copy(box, header, epoch, 0, (u8 *) words, 16) != 16)
        return 5; /* EIO */
    return write(box, Log, 0, words);
}

#ifdef __CUDACC__
__global__ static void
run(Box box)
{
    box.line->error = program(&box);
    FENCE();
    box.line->has_ended = 1;
}
#endif

/* Starts the program where it runs: on the device if there is one. 0, or why it cannot. */
static const char *
start(Box box, u64 bytes)
{
#ifdef __CUDACC__
    int devices = 0;
    void *seen;

    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return "there is no device";
    if (cudaHostRegister(box.memory, bytes, cudaHostRegisterMapped) != cudaSuccess
        || cudaHostGetDevicePointer(&seen, box.memory, 0) != cudaSuccess)
        return "the device cannot reach the shared memory";
    box.memory = (u8 *) seen;
    if (cudaHostRegister(box.line, 4096, cudaHostRegisterMapped) != cudaSuccess
        || cudaHostGetDevicePointer(&seen, box.line, 0) != cudaSuccess)
        return "the device cannot reach this process";
    box.line = (Mailroom *) seen;
    run<<<1, 1>>>(box);
    return cudaGetLastError() == cudaSuccess ? 0 : "the device does not run the program";
#else
    (void) bytes;
    std::thread([box]() mutable {
        box.line->error = program(&box);
        FENCE();
        box.line->has_ended = 1;
    }).detach();
    return 0;
#endif
}

/* Why the program will never end, if it has broken off: a kernel that has faulted says nothing by itself. */
static const char *
broken(Mailroom *told)
{
#ifdef __CUDACC__
    cudaError_t state = cudaStreamQuery(0);

    if (state != cudaErrorNotReady && !(state == cudaSuccess && told->has_ended))
        return state == cudaSuccess ? "the device has ended without a word" : cudaGetErrorString(state);
#else
    (void) told;
#endif
    return 0;
}

/* Bytes and three descriptors from the host. */
static int
greeted(int socket, u8 *card, int *fds)
{
    char room[CMSG_SPACE(3 * sizeof(int))];
    struct iovec part = { card, 32 };
    struct msghdr message = {};
    struct cmsghdr *first;

    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    if (recvmsg(socket, &message, MSG_WAITALL) != 32 || memcmp(card, "cell\0\0\0\1", 8) != 0)
        return -1;
    first = CMSG_FIRSTHDR(&message);
    if (!first || first->cmsg_type != SCM_RIGHTS || first->cmsg_len != CMSG_LEN(3 * sizeof(int)))
        return -1;
    memcpy(fds, CMSG_DATA(first), 3 * sizeof(int));
    return 0;
}

/* Called by the worker's process, or thread: the number of the socket to the host comes first. */
extern "C" int
covey_cell_work(int count, const char *const *words)
{
    u8 card[32];
    int fds[3];
    struct stat found;
    Box box = {};
    u64 one = 1;
    const char *why;

    if (count < 1 || greeted(atoi(words[0]), card, fds) != 0 || fstat(fds[0], &found) != 0) {
        fprintf(stderr, "covey: worker: no host\n");
        return 1;
    }
    /* A device reaches what is registered with it, page by page: the boxes and headers, and the beginning of the heap. */
    memcpy(&box.worker, card + 8, 4);
    memcpy(&box.uid, card + 16, 4);
    u32 workers;
    memcpy(&workers, card + 12, 4);
    u64 bytes = Boxes + (u64) workers * BoxBytes + (16 << 20);
    if (bytes > (u64) found.st_size)
        bytes = (u64) found.st_size & ~(u64) 4095;
    void *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    void *line = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || line == MAP_FAILED) {
        fprintf(stderr, "covey: worker: no memory\n");
        return 1;
    }
    box.memory = (u8 *) memory;
    box.bytes = bytes;
    box.line = (Mailroom *) line;
    Mailroom *told = box.line;
    if ((why = start(box, bytes))) {
        fprintf(stderr, "covey: worker: %s\n", why);
        return 1;
    }
    while (!told->has_ended) {
        if ((why = broken(told))) {
            fprintf(stderr, "covey: worker: %s\n", why);
            return 1;
        }
        if (told->wants_bell) {
            told->wants_bell = 0;
            if (::write(fds[1], &one, sizeof one) < 0)
                return 1;
        }
        usleep(50);
    }
    if (told->error)
        fprintf(stderr, "covey: worker: error %d\n", told->error);
    return told->error ? 1 : 0;
}
