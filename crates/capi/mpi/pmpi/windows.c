/* Windows: when one is made, its ranks tell each other where their parts lie and try who reaches whom; and
 * the epochs, because an access that does not pass through MPI must keep to them too.
 *
 * MPI may open an epoch without waiting for anybody, and send what is done in it later. What we do, we do at
 * once, so each way of synchronising is completed by what makes it certain:
 *
 *   fence            a barrier: everybody has come before anybody goes on
 *   post and start   a message of no bytes from who posts to who starts; an access waits for it
 *   lock             one byte is got by MPI and flushed: that is done under the lock, so it is held
 *
 * All of that is a matter of the windows in which somebody reaches another rank, which all ranks know. */
#include "pmpi.h"
#include <sched.h>

enum { BUCKETS = 64 };
/* How long an access waits for a post, s. A program that cannot post before is not held up for ever: MPI
 * is then left to carry the access. */
#define PATIENCE 1.0

/* One rank's part, as far as we may access it. */
struct epoch {
    enum { UNLOCKED, ASKED, HELD } lock;
    int is_started;
    /* Posts that belong to epochs that were started, and have not been seen. */
    int posts_owed;
};

struct window {
    struct window *next;
    MPI_Win handle;
    /* All ranks of the window, apart from the program's messages. */
    MPI_Comm comm;
    int ranks;
    /* Some rank reaches another one. */
    int is_shared;
    int is_fenced;
    struct peer *peers;
    struct epoch *epochs;
};

static struct window *windows[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
atomic_int window_count;

/* ---- the windows that are known ---- */

static struct window **place_of(MPI_Win handle)
{
    struct window **at = &windows[((uintptr_t)handle * 0x9E3779B97F4A7C15ull >> 40) % BUCKETS];
    while (*at && (*at)->handle != handle)
        at = &(*at)->next;
    return at;
}

struct window *window_find(MPI_Win handle)
{
    if (atomic_load_explicit(&window_count, memory_order_relaxed) == 0)
        return NULL;
    pthread_mutex_lock(&lock);
    struct window *window = *place_of(handle);
    pthread_mutex_unlock(&lock);
    return window;
}

static void keep(struct window *window)
{
    pthread_mutex_lock(&lock);
    struct window **at = place_of(window->handle);
    window->next = *at;
    *at = window;
    atomic_fetch_add(&window_count, 1);
    pthread_mutex_unlock(&lock);
}

static struct window *take(MPI_Win handle)
{
    pthread_mutex_lock(&lock);
    struct window **at = place_of(handle), *window = *at;
    if (window) {
        *at = window->next;
        atomic_fetch_sub(&window_count, 1);
    }
    pthread_mutex_unlock(&lock);
    return window;
}

/* ---- their life ---- */

/* The ranks of a window have each other's cards, and try them. */
static void meet(struct window *window, const struct card *own)
{
    int is_reaching = 0;
    struct card *cards = calloc((size_t)window->ranks, sizeof *cards);
    if (!cards || !window->peers || !window->epochs)
        PMPI_Abort(MPI_COMM_WORLD, 1);
    real.Allgather(own, sizeof *own, MPI_BYTE, cards, sizeof *own, MPI_BYTE, window->comm);
    for (int rank = 0; rank < window->ranks; rank++) {
        card_try(&cards[rank], own, &window->peers[rank]);
        is_reaching |= window->peers[rank].pid != 0 && cards[rank].pid != own->pid;
    }
    PMPI_Allreduce(&is_reaching, &window->is_shared, 1, MPI_INT, MPI_LOR, window->comm);
    free(cards);
}

/* A window has been made. */
static void note(MPI_Win handle, MPI_Comm comm, void *base, MPI_Aint bytes, int unit, int is_mapped)
{
    struct card own;
    MPI_Group group;
    struct window *window = calloc(1, sizeof *window);
    if (!window)
        PMPI_Abort(MPI_COMM_WORLD, 1);
    window->handle = handle;
    /* Not MPI_Comm_dup, which would call the program's functions for its attributes. */
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_create(comm, group, &window->comm);
    PMPI_Group_free(&group);
    PMPI_Comm_size(window->comm, &window->ranks);
    window->peers = calloc((size_t)window->ranks, sizeof *window->peers);
    window->epochs = calloc((size_t)window->ranks, sizeof *window->epochs);
    card_fill(&own, base, (uint64_t)bytes, unit, is_mapped);
    meet(window, &own);
    keep(window);
}

static int is_ours(int code)
{
    return code == MPI_SUCCESS && !settings.is_off && settings.windows != WINDOWS_OFF;
}

int MPI_Win_create(void *base, MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *handle)
{
    int code = real.Win_create(base, bytes, unit, info, comm, handle);
    if (is_ours(code))
        note(*handle, comm, base, bytes, unit, 0);
    return code;
}
ALSO_AS_PMPI(Win_create);

int MPI_Win_allocate(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *handle)
{
    int code = real.Win_allocate(bytes, unit, info, comm, base, handle);
    if (is_ours(code))
        note(*handle, comm, *(void **)base, bytes, unit, 1);
    return code;
}
ALSO_AS_PMPI(Win_allocate);

int MPI_Win_allocate_shared(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *handle)
{
    int code = real.Win_allocate_shared(bytes, unit, info, comm, base, handle);
    if (is_ours(code))
        note(*handle, comm, *(void **)base, bytes, unit, 1);
    return code;
}
ALSO_AS_PMPI(Win_allocate_shared);

static void take_post(struct window *window, int rank)
{
    real.Recv(NULL, 0, MPI_BYTE, rank, 0, window->comm, MPI_STATUS_IGNORE);
    window->epochs[rank].posts_owed--;
}

int MPI_Win_free(MPI_Win *handle)
{
    struct window *window = take(*handle);
    int code = real.Win_free(handle);
    if (!window)
        return code;
    for (int rank = 0; rank < window->ranks; rank++)
        while (window->epochs[rank].posts_owed > 0)
            take_post(window, rank);
    PMPI_Comm_free(&window->comm);
    free(window->peers), free(window->epochs), free(window);
    return code;
}
ALSO_AS_PMPI(Win_free);

/* ---- fences ---- */

int MPI_Win_fence(int assertion, MPI_Win handle)
{
    struct window *window = window_find(handle);
    if (!window)
        return real.Win_fence(assertion, handle);
    if (window->is_shared)
        real.Barrier(window->comm);
    int code = real.Win_fence(assertion, handle);
    window->is_fenced = code == MPI_SUCCESS && !(assertion & MPI_MODE_NOSUCCEED);
    return code;
}
ALSO_AS_PMPI(Win_fence);

/* ---- post, start, complete ---- */

/* The ranks of a group in a window; the caller frees them. NULL when there are none. */
static int *ranks_of(const struct window *window, MPI_Group group, int *count)
{
    MPI_Group all;
    PMPI_Group_size(group, count);
    int *given = calloc((size_t)*count + 1, sizeof *given), *ranks = calloc((size_t)*count + 1, sizeof *ranks);
    if (!given || !ranks)
        PMPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < *count; i++)
        given[i] = i;
    PMPI_Comm_group(window->comm, &all);
    PMPI_Group_translate_ranks(group, *count, given, all, ranks);
    PMPI_Group_free(&all);
    free(given);
    return ranks;
}

int MPI_Win_post(MPI_Group group, int assertion, MPI_Win handle)
{
    int count, code = real.Win_post(group, assertion, handle);
    struct window *window = window_find(handle);
    if (code != MPI_SUCCESS || !window || !window->is_shared)
        return code;
    int *ranks = ranks_of(window, group, &count);
    for (int i = 0; i < count; i++) {
        MPI_Request request;
        real.Isend(NULL, 0, MPI_BYTE, ranks[i], 0, window->comm, &request);
        real.Request_free(&request);
    }
    free(ranks);
    return code;
}
ALSO_AS_PMPI(Win_post);

int MPI_Win_start(MPI_Group group, int assertion, MPI_Win handle)
{
    int count, code = real.Win_start(group, assertion, handle);
    struct window *window = window_find(handle);
    if (code != MPI_SUCCESS || !window)
        return code;
    window->is_fenced = 0;
    if (!window->is_shared)
        return code;
    int *ranks = ranks_of(window, group, &count);
    for (int i = 0; i < count; i++) {
        window->epochs[ranks[i]].is_started = 1;
        window->epochs[ranks[i]].posts_owed++;
    }
    free(ranks);
    return code;
}
ALSO_AS_PMPI(Win_start);

int MPI_Win_complete(MPI_Win handle)
{
    struct window *window = window_find(handle);
    for (int rank = 0; window && rank < window->ranks; rank++)
        window->epochs[rank].is_started = 0;
    return real.Win_complete(handle);
}
ALSO_AS_PMPI(Win_complete);

/* Whether a rank has posted for the epoch that we have started. */
static int has_posted(struct window *window, int rank)
{
    struct epoch *epoch = &window->epochs[rank];
    double since = PMPI_Wtime();
    for (unsigned round = 1; epoch->posts_owed > 0; round++) {
        int has_come = 0;
        PMPI_Iprobe(rank, 0, window->comm, &has_come, MPI_STATUS_IGNORE);
        if (has_come)
            take_post(window, rank);
        else if (round % 64 == 0 && PMPI_Wtime() - since > PATIENCE)
            return 0;
        else if (round % 64 == 0)
            sched_yield();
    }
    return 1;
}

/* ---- locks ---- */

int MPI_Win_lock(int kind, int rank, int assertion, MPI_Win handle)
{
    int code = real.Win_lock(kind, rank, assertion, handle);
    struct window *window = window_find(handle);
    if (code == MPI_SUCCESS && window && rank >= 0 && rank < window->ranks)
        window->epochs[rank].lock = assertion & MPI_MODE_NOCHECK ? HELD : ASKED;
    return code;
}
ALSO_AS_PMPI(Win_lock);

int MPI_Win_unlock(int rank, MPI_Win handle)
{
    struct window *window = window_find(handle);
    if (window && rank >= 0 && rank < window->ranks)
        window->epochs[rank].lock = UNLOCKED;
    return real.Win_unlock(rank, handle);
}
ALSO_AS_PMPI(Win_unlock);

static void all_locks(MPI_Win handle, int lock)
{
    struct window *window = window_find(handle);
    for (int rank = 0; window && rank < window->ranks; rank++)
        window->epochs[rank].lock = lock;
}

int MPI_Win_lock_all(int assertion, MPI_Win handle)
{
    int code = real.Win_lock_all(assertion, handle);
    if (code == MPI_SUCCESS)
        all_locks(handle, assertion & MPI_MODE_NOCHECK ? HELD : ASKED);
    return code;
}
ALSO_AS_PMPI(Win_lock_all);

int MPI_Win_unlock_all(MPI_Win handle)
{
    all_locks(handle, UNLOCKED);
    return real.Win_unlock_all(handle);
}
ALSO_AS_PMPI(Win_unlock_all);

/* Waits until a lock that was asked for is held. */
static int hold(struct window *window, int rank)
{
    char byte;
    if (window->peers[rank].bytes == 0 ||
        real.Get(&byte, 1, MPI_BYTE, rank, 0, 1, MPI_BYTE, window->handle) != MPI_SUCCESS ||
        PMPI_Win_flush(rank, window->handle) != MPI_SUCCESS)
        return 0;
    window->epochs[rank].lock = HELD;
    return 1;
}

/* ---- accesses ---- */

const struct peer *window_enter(struct window *window, int rank)
{
    if (rank < 0 || rank >= window->ranks || window->peers[rank].pid == 0)
        return NULL;
    struct epoch *epoch = &window->epochs[rank];
    int may = window->is_fenced;
    if (epoch->lock != UNLOCKED)
        may = epoch->lock == HELD || hold(window, rank);
    else if (epoch->is_started)
        may = has_posted(window, rank);
    return may ? &window->peers[rank] : NULL;
}
