/* Messages of ours, and the requests that have something to do when they complete. */
#include "pmpi.h"
#include <stdio.h>

enum { BUCKETS = 1024 };

static struct pending *buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
atomic_int pending_count, orphan_count;

/* ---- messages ---- */

int message_take(struct message *message, const void *data, int count, MPI_Datatype type, int peer, enum use use)
{
    if (settings.is_off || count <= 0 || peer == MPI_PROC_NULL || type_is_plain(type))
        return 0;
    struct ready *ready = type_worth(type, count, use);
    if (!ready)
        return 0;
    char *buffer = buffer_take(ready->size);
    if (!buffer) {
        ready_release(ready);
        return 0;
    }
    *message = (struct message){ready, (void *)data, buffer, (int)ready->size};
    return 1;
}

int message_in(struct message *message, void *data, int count, MPI_Datatype type, int peer)
{
    return message_take(message, data, count, type, peer, TO_WRITE);
}

int message_out(struct message *message, const void *data, int count, MPI_Datatype type, int peer)
{
    if (!message_take(message, data, count, type, peer, TO_READ))
        return 0;
    message_pack(message);
    return 1;
}

void message_pack(struct message *message)
{
    ready_pack(message->ready, message->data, message->buffer);
}

void message_arrived(const struct message *message, MPI_Status *status)
{
    int bytes = 0, is_cancelled = 0;
    PMPI_Test_cancelled(status, &is_cancelled);
    if (is_cancelled)
        return;
    PMPI_Get_count(status, MPI_BYTE, &bytes);
    if (bytes > 0)
        ready_unpack(message->ready, message->buffer, (uint64_t)bytes, message->data);
}

void message_drop(struct message *message)
{
    buffer_give(message->buffer, (uint64_t)message->bytes);
    ready_release(message->ready);
}

/* ---- requests ---- */

static struct pending **bucket_of(MPI_Request request)
{
    uintptr_t number = (uintptr_t)request;
    return &buckets[(number * 0x9E3779B97F4A7C15ull >> 40) % BUCKETS];
}

/* Takes an entry out of the table; the caller has the lock. */
static void unlink_pending(struct pending *pending)
{
    struct pending **at = bucket_of(pending->request);
    while (*at && *at != pending)
        at = &(*at)->next;
    if (*at) {
        *at = pending->next;
        atomic_fetch_sub(&pending_count, 1);
    }
}

struct pending *pending_add(MPI_Request request, const struct message *message, int is_receive)
{
    struct pending *pending = calloc(1, sizeof *pending);
    if (!pending) {
        fprintf(stderr, "covey-pmpi: no memory for a request\n");
        PMPI_Abort(MPI_COMM_WORLD, 1);
        return NULL;
    }
    pending->request = request;
    pending->message = *message;
    pending->is_receive = is_receive;
    pending->is_active = 1;
    pthread_mutex_lock(&lock);
    struct pending **bucket = bucket_of(request);
    pending->next = *bucket;
    *bucket = pending;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&pending_count, 1);
    return pending;
}

static struct pending *find(MPI_Request request)
{
    struct pending *pending = *bucket_of(request);
    while (pending && (pending->request != request || pending->is_orphan))
        pending = pending->next;
    return pending;
}

struct pending *pending_find(MPI_Request request)
{
    if (atomic_load_explicit(&pending_count, memory_order_relaxed) == 0 || request == MPI_REQUEST_NULL)
        return NULL;
    pthread_mutex_lock(&lock);
    struct pending *pending = find(request);
    pthread_mutex_unlock(&lock);
    return pending;
}

int pending_find_all(int count, const MPI_Request *requests, struct pending **found)
{
    int ours = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) {
        found[i] = requests[i] == MPI_REQUEST_NULL ? NULL : find(requests[i]);
        ours += found[i] != NULL;
    }
    pthread_mutex_unlock(&lock);
    return ours;
}

void pending_forget(struct pending *pending)
{
    pthread_mutex_lock(&lock);
    unlink_pending(pending);
    pthread_mutex_unlock(&lock);
    message_drop(&pending->message);
    free(pending);
}

void pending_done(struct pending *pending, int code, MPI_Status *status)
{
    if (pending->is_active && pending->is_receive && !pending->is_unpacked && code == MPI_SUCCESS)
        message_arrived(&pending->message, status);
    pending->is_active = pending->is_unpacked = 0;
    if (!pending->is_persistent)
        pending_forget(pending);
}

/* ---- requests that the program has freed ---- */

void pending_orphan(struct pending *pending)
{
    pthread_mutex_lock(&lock);
    pending->is_orphan = 1;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&orphan_count, 1);
}

/* Takes one orphan out of the table that nobody else is looking after. */
static struct pending *take_orphan(struct pending *const *tried, int count)
{
    struct pending *found = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < BUCKETS && !found; i++)
        for (struct pending *one = buckets[i]; one && !found; one = one->next) {
            int was_tried = 0;
            for (int j = 0; j < count; j++)
                was_tried |= tried[j] == one;
            if (one->is_orphan == 1 && !was_tried)
                found = one;
        }
    if (found)
        found->is_orphan = 2;
    pthread_mutex_unlock(&lock);
    return found;
}

void orphans_look(void)
{
    enum { AT_ONCE = 64 };
    struct pending *tried[AT_ONCE], *one;
    int count = 0;
    while (count < AT_ONCE && (one = take_orphan(tried, count))) {
        MPI_Status status;
        MPI_Request request = one->request;
        int is_done = 0, code = real.Test(&request, &is_done, &status);
        if (is_done || code != MPI_SUCCESS) {
            if (request != MPI_REQUEST_NULL)
                real.Request_free(&request);
            one->is_persistent = 0;
            pending_done(one, code, &status);
            atomic_fetch_sub(&orphan_count, 1);
        } else {
            pthread_mutex_lock(&lock);
            one->is_orphan = 1;
            pthread_mutex_unlock(&lock);
            tried[count++] = one;
        }
    }
}
