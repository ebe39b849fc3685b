/* libcovey-pmpi: derived datatypes of unmodified MPI programs, packed and unpacked by Covey's kernels.
 *
 * Preloaded, it stands before the MPI library. A message of a derived type that is worth it is packed
 * into a buffer and goes as MPI_BYTE, or comes as MPI_BYTE and is unpacked: on the wire it is the same
 * bytes, so that a peer without the library, and a call that it leaves alone, match it. MPI carries all
 * messages; nothing of its matching, ordering, cancelling or status is touched. Memory in windows of ranks
 * on the same machine is read and written by the origin alone, within the epochs that MPI keeps.
 *
 *   settings.c    environment, the real functions, counters
 *   buffers.c     buffers for packed bytes, kept for the next message
 *   types.c       datatypes and what was prepared of them
 *   requests.c    requests that have something to do when they complete
 *   point.c       one sender, one receiver; MPI_Pack and MPI_Unpack
 *   complete.c    MPI_Wait, MPI_Test and their families
 *   collective.c  collective operations
 *   windows.c     windows: who reaches whose memory, and in which epoch
 *   reach.c       the memory of other processes of this machine
 *   onesided.c    MPI_Put and MPI_Get
 *
 * Each function is exported under its name in MPI_ and in PMPI_: the Fortran bindings of MPICH call the
 * first, those of Open MPI the second, so C, mpif.h, `use mpi` and `use mpi_f08` all come here.
 * It is compiled with the mpicc of the MPI library it is for. */
#ifndef COVEY_PMPI_H
#define COVEY_PMPI_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <covey.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- the MPI library behind us ---- */

#define WRAPPED(X)                                                                                  \
    X(Type_commit) X(Type_dup) X(Finalize) X(Barrier) X(Pack) X(Unpack)                             \
    X(Send) X(Bsend) X(Ssend) X(Rsend) X(Isend) X(Ibsend) X(Issend) X(Irsend)                       \
    X(Send_init) X(Bsend_init) X(Ssend_init) X(Rsend_init) X(Recv_init) X(Start) X(Startall)        \
    X(Recv) X(Irecv) X(Mrecv) X(Imrecv) X(Sendrecv) X(Sendrecv_replace)                                                \
    X(Wait) X(Waitall) X(Waitany) X(Waitsome) X(Test) X(Testall) X(Testany) X(Testsome)             \
    X(Request_free) X(Request_get_status)                                                           \
    X(Bcast) X(Gather) X(Gatherv) X(Scatter) X(Scatterv) X(Allgather) X(Allgatherv)                 \
    X(Alltoall) X(Alltoallv) X(Alltoallw)                                                           \
    X(Neighbor_allgather) X(Neighbor_allgatherv)                                                    \
    X(Neighbor_alltoall) X(Neighbor_alltoallv) X(Neighbor_alltoallw)                                \
    X(Win_create) X(Win_allocate) X(Win_allocate_shared) X(Win_free) X(Win_fence) X(Win_start)      \
    X(Win_post) X(Win_complete) X(Win_lock) X(Win_unlock) X(Win_lock_all) X(Win_unlock_all)         \
    X(Put) X(Get) X(Rput) X(Rget)

struct real {
#define FIELD(name) __typeof__(&MPI_##name) name;
    WRAPPED(FIELD)
#undef FIELD
};

/* The functions of the MPI library. Only those that we do not stand before may be called as PMPI_. */
extern struct real real;

/* Exports a function under its second name. */
#define ALSO_AS_PMPI(name) extern __typeof__(MPI_##name) PMPI_##name __attribute__((alias("MPI_" #name)))

/* ---- settings and counters ---- */

struct settings {
    /* COVEY_PMPI=off */
    int is_off;
    /* COVEY_PMPI_MIN_BYTES: smaller messages are left to MPI. */
    uint64_t bytes_min;
    /* COVEY_PMPI_MAX_BYTES: larger ones as well. */
    uint64_t bytes_max;
    /* COVEY_PMPI_RUN_BYTES: types whose contiguous pieces are longer are left to MPI. */
    uint64_t run_bytes_max;
    /* The same for plain vectors of more than 256 KiB. */
    uint64_t long_run_bytes_max;
    /* COVEY_PMPI_WINDOWS=off, all, or what is scattered. */
    enum { WINDOWS_OFF, WINDOWS_SCATTERED, WINDOWS_ALL } windows;
    /* COVEY_PMPI_REPORT=1 */
    int reports;
};
extern struct settings settings;

struct counters {
    atomic_ullong packed, packed_bytes, unpacked, unpacked_bytes, collectives;
    /* Of MPI_Put and MPI_Get: done by us, and not. */
    atomic_ullong direct, direct_bytes, indirect;
    /* Derived types that were left to MPI: contiguous or with long pieces, small, large, not known. */
    atomic_ullong contiguous, small, large, unknown;
};
extern struct counters counters;

#define COUNT(what, by) atomic_fetch_add_explicit(&counters.what, (by), memory_order_relaxed)

/* ---- buffers ---- */

/* At least so many bytes, aligned for vectors; NULL when there is no memory. */
char *buffer_take(uint64_t bytes);
/* Takes back what was taken for so many bytes. NULL is permitted. */
void buffer_give(char *buffer, uint64_t bytes);

/* ---- types ---- */

/* Some copies of a type, made ready. Never changes; lives until it is released as often as it was given. */
struct ready {
    atomic_int users;
    uint64_t count, size, runs;
    int shape;
    /* First byte touched and the one behind the last, from the buffer's address. */
    int64_t begin, end;
    covey_plan *plan;
    /* NULL where it is not known to be writable. */
    covey_target *target;
};

/* What collectives must know of a type. */
struct facts {
    int64_t size, extent, lower;
    /* MPI's own, of a power of two bytes: stays as it is. */
    int is_plain;
    /* Any number of copies is one run, from `lower` on. */
    int is_contiguous;
};

enum use { TO_READ = 0, TO_WRITE = 1 };

/* Whether a type is MPI's own and has no holes. */
int type_is_plain(MPI_Datatype type);
/* 0 when nothing is known of the type: it is not committed, or none of MPI's. */
int type_facts(MPI_Datatype type, struct facts *facts);
/* NULL when the type cannot be described, or not be written to. */
struct ready *type_ready(MPI_Datatype type, uint64_t count, enum use use);
/* The same, and NULL as well when MPI does it as well. */
struct ready *type_worth(MPI_Datatype type, int count, enum use use);
void ready_release(struct ready *ready);

/* All bytes of `from`, packed. */
void ready_pack(const struct ready *ready, const void *from, char *into);
/* The first so many packed bytes to their places. */
void ready_unpack(const struct ready *ready, const char *packed, uint64_t bytes, void *into);

/* ---- messages ---- */

/* A message of ours: its type, where the program has it, and its packed bytes. */
struct message {
    struct ready *ready;
    void *data;
    char *buffer;
    int bytes;
};

/* Takes a message of the program, or leaves it to MPI (0). `message_out` packs it. */
int message_in(struct message *message, void *data, int count, MPI_Datatype type, int peer);
int message_out(struct message *message, const void *data, int count, MPI_Datatype type, int peer);
int message_take(struct message *message, const void *data, int count, MPI_Datatype type, int peer, enum use use);
/* Packs it again. */
void message_pack(struct message *message);
/* Unpacks what a status says has come. */
void message_arrived(const struct message *message, MPI_Status *status);
void message_drop(struct message *message);

/* ---- requests ---- */

struct pending {
    struct pending *next;
    MPI_Request request;
    struct message message;
    int is_receive, is_persistent;
    /* Started and not yet completed; already unpacked though it still is; freed by the program. */
    int is_active, is_unpacked, is_orphan;
};

/* Keeps a message until its request completes. Drops it, and says so, where there is no memory. */
struct pending *pending_add(MPI_Request request, const struct message *message, int is_receive);
/* NULL when the request is none of ours. */
struct pending *pending_find(MPI_Request request);
/* Those of ours among many, NULL for others; answers how many. */
int pending_find_all(int count, const MPI_Request *requests, struct pending **found);
/* Its request has completed, with this result. */
void pending_done(struct pending *pending, int code, MPI_Status *status);
/* Its request will not be seen again. */
void pending_forget(struct pending *pending);
/* The program has freed its request. */
void pending_orphan(struct pending *pending);

extern atomic_int pending_count, orphan_count;
void orphans_look(void);
/* Ends requests that the program has freed: some messages may have come. */
static inline void look_after_orphans(void)
{
    if (atomic_load_explicit(&orphan_count, memory_order_relaxed) > 0)
        orphans_look();
}

/* ---- windows ---- */

/* How a rank's part of a window is reached from here. */
struct peer {
    /* 0: by MPI only. */
    int pid;
    /* Where it lies in that process. */
    uint64_t base, bytes;
    int64_t unit;
    /* Where we have mapped it too; else NULL. */
    char *view;
};

struct window;
extern atomic_int window_count;

/* NULL when it is not known. */
struct window *window_find(MPI_Win handle);
/* The rank, when its memory can be reached, and may be now; else NULL. Waits for the rank's permission. */
const struct peer *window_enter(struct window *window, int rank);

/* ---- memory of other processes ---- */

/* What a process tells of itself and a piece of its memory. */
struct card {
    uint64_t machine[3], pid, probe_at, probe;
    uint64_t base, bytes, unit;
    /* The file of shared memory that it lies in, or 0. */
    uint64_t device, inode, offset;
};

/* `is_mapped`: MPI keeps the memory mapped as long as there is the window. */
void card_fill(struct card *card, void *base, uint64_t bytes, int unit, int is_mapped);
/* Tries whether we reach it. */
void card_try(const struct card *card, const struct card *own, struct peer *peer);

/* A piece of that process's memory. */
struct piece {
    uint64_t at, bytes;
};
/* Copies between memory of ours and pieces, one after the other. 0: the system refused. */
int reach_read(int pid, char *into, const struct piece *pieces, size_t count);
int reach_write(int pid, const char *from, const struct piece *pieces, size_t count);

#endif
