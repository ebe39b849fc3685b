/* MPI_Put and MPI_Get of scattered data: the origin moves it alone, with the types of both sides, at once.
 *
 * Memory that both have mapped is moved in one pass. Other memory is copied by the kernel: as a whole, and
 * taken apart here, where that is not much more than the data; else piece by piece, where there are few
 * pieces. Bytes between the pieces are never written. Whatever is not so simple, or is an error, is MPI's:
 * it has then not been touched, or is written once more with the same bytes. */
#include "pmpi.h"

/* What the ways take, as measured: the kernel for each piece and for each KiB; MPI for each operation, for each
 * piece of the rank's type, and for each KiB. Open MPI makes a system call for each piece; MPICH has the rank
 * take part, which does so when it calls MPI. */
enum { PIECE_NS = 140, KIB_NS = 90 };
#ifdef OPEN_MPI
enum { MPI_NS = 500, MPI_PIECE_NS = 420, MPI_KIB_NS = 90 };
#else
enum { MPI_NS = 3000, MPI_PIECE_NS = 10, MPI_KIB_NS = 300 };
#endif
/* What passes through memory of ours at a time, where it can be cut. */
#define STEP_BYTES (256ull << 10)

/* ---- sides ---- */

/* One side of an operation: where displacement 0 lies, and the bytes from there. */
struct side {
    /* NULL: one run. */
    struct ready *ready;
    char *origin;
    int64_t begin;
    uint64_t size, span, runs;
};

static int side_of(struct side *side, char *origin, int count, MPI_Datatype type, enum use use)
{
    struct facts facts;
    *side = (struct side){.origin = origin, .runs = 1};
    if (count <= 0 || !type_facts(type, &facts) || facts.size <= 0)
        return 0;
    side->begin = facts.lower;
    if (facts.is_contiguous)
        return !__builtin_mul_overflow((uint64_t)facts.size, (uint64_t)count, &side->size) &&
               (side->span = side->size, 1);
    side->ready = type_ready(type, (uint64_t)count, use);
    if (!side->ready)
        return 0;
    side->begin = side->ready->begin;
    side->size = side->ready->size;
    side->span = (uint64_t)(side->ready->end - side->ready->begin);
    side->runs = side->ready->runs;
    return 1;
}

static int is_flat(const struct side *side)
{
    return !side->ready;
}

static char *first_byte(const struct side *side)
{
    return side->origin + side->begin;
}

static struct covey_memory memory_of(const struct side *side)
{
    return (struct covey_memory){side->origin, side->begin, side->begin + (int64_t)side->span};
}

static int is_overlapping(const struct side *one, const struct side *two)
{
    uintptr_t a = (uintptr_t)first_byte(one), b = (uintptr_t)first_byte(two);
    return a < b + two->span && b < a + one->span;
}

/* Moves all of one side to the other, both in memory of ours. */
static int move(const struct side *to, const struct side *from)
{
    if (is_flat(to) && is_flat(from))
        return memcpy(first_byte(to), first_byte(from), to->size) != NULL;
    if (is_flat(from))
        return covey_unpack(to->ready->target, first_byte(from), from->size, 0, memory_of(to)) == COVEY_OK;
    if (is_flat(to))
        return covey_pack(from->ready->plan, memory_of(from), 0, first_byte(to), to->size) == COVEY_OK;
    return covey_copy(to->ready->target, memory_of(to), from->ready->plan, memory_of(from)) == COVEY_OK;
}

/* ---- by the kernel ---- */

struct pieces {
    struct piece *first;
    size_t count;
};

/* The runs of a rank's memory, at its addresses. */
static int list_runs(struct pieces *pieces, const struct side *far)
{
    enum { AT_ONCE = 512 };
    struct covey_run runs[AT_ONCE];
    size_t found;
    *pieces = (struct pieces){malloc(far->runs * sizeof *pieces->first), 0};
    for (uint64_t at = 0; pieces->first && at < far->size;) {
        if (covey_plan_runs(far->ready->plan, at, runs, AT_ONCE, &found) != COVEY_OK || found == 0 ||
            pieces->count + found > far->runs) {
            free(pieces->first);
            return 0;
        }
        for (size_t i = 0; i < found; i++) {
            pieces->first[pieces->count++] =
                (struct piece){(uint64_t)(uintptr_t)far->origin + (uint64_t)runs[i].offset, runs[i].bytes};
            at += runs[i].bytes;
        }
    }
    return pieces->first != NULL;
}

static struct piece whole(const struct side *far)
{
    return (struct piece){(uintptr_t)first_byte(far), far->span};
}

/* One run of a rank to or from scattered memory of ours, in steps. */
static int in_steps(const struct side *near, int pid, uint64_t at, int puts)
{
    uint64_t step = near->size < STEP_BYTES ? near->size : STEP_BYTES;
    char *held = buffer_take(step);
    int is_done = held != NULL;
    for (uint64_t done = 0; is_done && done < near->size; done += step) {
        uint64_t bytes = near->size - done < step ? near->size - done : step;
        struct piece piece = {at + done, bytes};
        if (puts)
            is_done = covey_pack(near->ready->plan, memory_of(near), done, held, bytes) == COVEY_OK &&
                      reach_write(pid, held, &piece, 1);
        else
            is_done = reach_read(pid, held, &piece, 1) &&
                      covey_unpack(near->ready->target, held, bytes, done, memory_of(near)) == COVEY_OK;
    }
    buffer_give(held, step);
    return is_done;
}

/* All bytes of a rank's memory from the first to the last, held here. */
static int by_whole(const struct side *near, const struct side *far, int pid, int puts)
{
    struct piece piece = whole(far);
    struct side held = *far;
    char *buffer = buffer_take(far->span);
    held.origin = buffer - far->begin;
    int is_done = buffer != NULL && (puts ? move(&held, near) && reach_write(pid, buffer, &piece, 1)
                                          : reach_read(pid, buffer, &piece, 1) && move(near, &held));
    buffer_give(buffer, far->span);
    return is_done;
}

/* Each run of a rank's memory by itself. */
static int by_pieces(const struct side *near, const struct side *far, int pid, int puts)
{
    struct pieces pieces;
    if (!list_runs(&pieces, far))
        return 0;
    struct side held = {NULL, is_flat(near) ? first_byte(near) : buffer_take(far->size), 0, far->size, far->size, 1};
    int is_done = held.origin != NULL;
    if (puts)
        is_done = is_done && (is_flat(near) || move(&held, near)) &&
                  reach_write(pid, held.origin, pieces.first, pieces.count);
    else
        is_done = is_done && reach_read(pid, held.origin, pieces.first, pieces.count) &&
                  (is_flat(near) || move(near, &held));
    if (!is_flat(near))
        buffer_give(held.origin, far->size);
    free(pieces.first);
    return is_done;
}

static int by_kernel(const struct side *near, const struct side *far, int pid, int puts)
{
    if (is_flat(far) && is_flat(near)) {
        struct piece piece = whole(far);
        return puts ? reach_write(pid, first_byte(near), &piece, 1) : reach_read(pid, first_byte(near), &piece, 1);
    }
    if (is_flat(far))
        return in_steps(near, pid, whole(far).at, puts);
    /* Between the runs of what is put lie bytes that are not ours. */
    int may_whole = far->span <= settings.bytes_max && (!puts || far->span == far->size);
    uint64_t whole_ns = may_whole ? far->span / 1024 * KIB_NS : UINT64_MAX;
    uint64_t pieces_ns = far->runs * PIECE_NS + far->size / 1024 * KIB_NS;
    uint64_t mpi_ns = MPI_NS + far->runs * MPI_PIECE_NS + far->size / 1024 * MPI_KIB_NS;
    if (settings.windows != WINDOWS_ALL && whole_ns > mpi_ns && pieces_ns > mpi_ns)
        return 0;
    return whole_ns <= pieces_ns ? by_whole(near, far, pid, puts) : by_pieces(near, far, pid, puts);
}

/* ---- operations ---- */

/* Where the rank's side lies; 0 when that is not within its part of the window. */
static int place(struct side *far, const struct peer *peer, MPI_Aint displacement)
{
    int64_t at, first, end;
    if (displacement < 0 || __builtin_mul_overflow((int64_t)displacement, peer->unit, &at) ||
        __builtin_add_overflow(at, far->begin, &first) || first < 0 || far->span > INT64_MAX ||
        __builtin_add_overflow(first, (int64_t)far->span, &end) || (uint64_t)end > peer->bytes)
        return 0;
    far->origin = (peer->view ? peer->view : (char *)(uintptr_t)peer->base) + at;
    return 1;
}

struct operation {
    void *data;
    int count;
    MPI_Datatype type;
    int rank;
    MPI_Aint displacement;
    int far_count;
    MPI_Datatype far_type;
    MPI_Win handle;
};

static int between(const struct side *near, struct side *far, struct window *window, const struct operation *is, int puts)
{
    if (near->size != far->size || near->origin == NULL ||
        (settings.windows != WINDOWS_ALL && is_flat(near) && is_flat(far)))
        return 0;
    const struct peer *peer = window_enter(window, is->rank);
    if (!peer || !place(far, peer, is->displacement))
        return 0;
    if (!peer->view)
        return by_kernel(near, far, peer->pid, puts);
    return !is_overlapping(near, far) && (puts ? move(far, near) : move(near, far));
}

/* 0: it is left to MPI. */
static int direct(const struct operation *is, int puts)
{
    struct window *window = window_find(is->handle);
    struct side near = {0}, far = {0};
    if (!window || is->rank < 0)
        return 0;
    int is_done = side_of(&near, is->data, is->count, is->type, puts ? TO_READ : TO_WRITE) &&
                  side_of(&far, NULL, is->far_count, is->far_type, puts ? TO_WRITE : TO_READ) &&
                  between(&near, &far, window, is, puts);
    if (is_done) {
        /* What was stored is there before anything that is sent to say so. */
        atomic_thread_fence(memory_order_seq_cst);
        COUNT(direct, 1);
        COUNT(direct_bytes, near.size);
    } else {
        COUNT(indirect, 1);
    }
    ready_release(near.ready), ready_release(far.ready);
    return is_done;
}

int MPI_Put(const void *data, int count, MPI_Datatype type, int rank, MPI_Aint displacement, int far_count,
            MPI_Datatype far_type, MPI_Win handle)
{
    struct operation is = {(void *)data, count, type, rank, displacement, far_count, far_type, handle};
    if (direct(&is, 1))
        return MPI_SUCCESS;
    return real.Put(data, count, type, rank, displacement, far_count, far_type, handle);
}
ALSO_AS_PMPI(Put);

int MPI_Get(void *data, int count, MPI_Datatype type, int rank, MPI_Aint displacement, int far_count,
            MPI_Datatype far_type, MPI_Win handle)
{
    struct operation is = {data, count, type, rank, displacement, far_count, far_type, handle};
    if (direct(&is, 0))
        return MPI_SUCCESS;
    return real.Get(data, count, type, rank, displacement, far_count, far_type, handle);
}
ALSO_AS_PMPI(Get);

/* The request of what has been done is that of an operation of no bytes. */

int MPI_Rput(const void *data, int count, MPI_Datatype type, int rank, MPI_Aint displacement, int far_count,
             MPI_Datatype far_type, MPI_Win handle, MPI_Request *request)
{
    struct operation is = {(void *)data, count, type, rank, displacement, far_count, far_type, handle};
    if (direct(&is, 1))
        return real.Rput(data, 0, MPI_BYTE, rank, 0, 0, MPI_BYTE, handle, request);
    return real.Rput(data, count, type, rank, displacement, far_count, far_type, handle, request);
}
ALSO_AS_PMPI(Rput);

int MPI_Rget(void *data, int count, MPI_Datatype type, int rank, MPI_Aint displacement, int far_count,
             MPI_Datatype far_type, MPI_Win handle, MPI_Request *request)
{
    struct operation is = {data, count, type, rank, displacement, far_count, far_type, handle};
    if (direct(&is, 0))
        return real.Rget(data, 0, MPI_BYTE, rank, 0, 0, MPI_BYTE, handle, request);
    return real.Rget(data, count, type, rank, displacement, far_count, far_type, handle, request);
}
ALSO_AS_PMPI(Rget);
