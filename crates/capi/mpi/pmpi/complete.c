/* MPI_Wait, MPI_Test and their families: what has come is unpacked before the program sees it. */
#include "pmpi.h"

/* Requests of ours among those of a call, and statuses where the program has none. */
struct batch {
    struct pending **ours;
    MPI_Status *statuses;
    void *memory;
    struct pending *few[16];
};

/* 0 when none of them is ours: the call is MPI's alone. */
static int batch_open(struct batch *batch, int count, const MPI_Request *requests, MPI_Status *statuses)
{
    if (count <= 0 || atomic_load_explicit(&pending_count, memory_order_relaxed) == 0)
        return 0;
    size_t pointers = (size_t)count * sizeof *batch->ours;
    batch->ours = batch->few;
    batch->memory = NULL;
    if ((size_t)count > sizeof batch->few / sizeof *batch->few) {
        batch->memory = malloc(pointers);
        batch->ours = batch->memory;
    }
    if (!batch->ours || pending_find_all(count, requests, batch->ours) == 0) {
        free(batch->memory);
        return 0;
    }
    batch->statuses = statuses;
    if (statuses == MPI_STATUSES_IGNORE) {
        batch->statuses = calloc((size_t)count, sizeof *batch->statuses);
        if (!batch->statuses)
            PMPI_Abort(MPI_COMM_WORLD, 1);
    }
    return 1;
}

static void batch_close(struct batch *batch, const MPI_Status *statuses)
{
    if (statuses == MPI_STATUSES_IGNORE)
        free(batch->statuses);
    free(batch->memory);
}

/* One request of a call that has answered `code` for all of them. */
static void one_done(struct pending *pending, int code, MPI_Request request, MPI_Status *status)
{
    if (!pending)
        return;
    if (code == MPI_ERR_IN_STATUS)
        code = status->MPI_ERROR;
    if (code == MPI_SUCCESS)
        pending_done(pending, code, status);
    else if (request == MPI_REQUEST_NULL)
        pending_forget(pending);
}

static void single_done(struct pending *pending, int code, MPI_Request request, MPI_Status *status)
{
    if (code == MPI_SUCCESS || request == MPI_REQUEST_NULL)
        pending_done(pending, code, status);
}

/* ---- one ---- */

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    struct pending *pending = pending_find(*request);
    MPI_Status own;
    if (pending && status == MPI_STATUS_IGNORE)
        status = &own;
    int code = real.Wait(request, status);
    if (pending)
        single_done(pending, code, *request, status);
    look_after_orphans();
    return code;
}
ALSO_AS_PMPI(Wait);

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    struct pending *pending = pending_find(*request);
    MPI_Status own;
    if (pending && status == MPI_STATUS_IGNORE)
        status = &own;
    int code = real.Test(request, flag, status);
    if (pending && (code != MPI_SUCCESS || *flag))
        single_done(pending, code, *request, status);
    look_after_orphans();
    return code;
}
ALSO_AS_PMPI(Test);

/* The request stays, but the data must be there. */
int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
    struct pending *pending = pending_find(request);
    MPI_Status own;
    if (pending && status == MPI_STATUS_IGNORE)
        status = &own;
    int code = real.Request_get_status(request, flag, status);
    if (pending && code == MPI_SUCCESS && *flag && pending->is_receive && pending->is_active && !pending->is_unpacked) {
        message_arrived(&pending->message, status);
        pending->is_unpacked = 1;
    }
    return code;
}
ALSO_AS_PMPI(Request_get_status);

int MPI_Request_free(MPI_Request *request)
{
    struct pending *pending = pending_find(*request);
    if (!pending)
        return real.Request_free(request);
    if (pending->is_active) {
        /* MPI goes on with it, and still needs the buffer. */
        pending_orphan(pending);
        *request = MPI_REQUEST_NULL;
        look_after_orphans();
        return MPI_SUCCESS;
    }
    int code = real.Request_free(request);
    pending_forget(pending);
    return code;
}
ALSO_AS_PMPI(Request_free);

/* ---- all ---- */

int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses)
{
    struct batch batch;
    int code;
    if (batch_open(&batch, count, requests, statuses)) {
        code = real.Waitall(count, requests, batch.statuses);
        for (int i = 0; i < count; i++)
            one_done(batch.ours[i], code, requests[i], &batch.statuses[i]);
        batch_close(&batch, statuses);
    } else {
        code = real.Waitall(count, requests, statuses);
    }
    look_after_orphans();
    return code;
}
ALSO_AS_PMPI(Waitall);

int MPI_Testall(int count, MPI_Request *requests, int *flag, MPI_Status *statuses)
{
    struct batch batch;
    int code;
    if (batch_open(&batch, count, requests, statuses)) {
        code = real.Testall(count, requests, flag, batch.statuses);
        for (int i = 0; i < count && (code != MPI_SUCCESS || *flag); i++)
            one_done(batch.ours[i], code, requests[i], &batch.statuses[i]);
        batch_close(&batch, statuses);
    } else {
        code = real.Testall(count, requests, flag, statuses);
    }
    look_after_orphans();
    return code;
}
ALSO_AS_PMPI(Testall);

/* ---- any ---- */

/* The one of `count` that has completed, if one has. */
static void any_done(struct batch *batch, int count, int code, const MPI_Request *requests, int index, MPI_Status *status)
{
    if (index >= 0 && index < count && index != MPI_UNDEFINED && batch->ours[index])
        single_done(batch->ours[index], code, requests[index], status);
}

int MPI_Waitany(int count, MPI_Request *requests, int *index, MPI_Status *status)
{
    struct batch batch;
    MPI_Status own;
    int code;
    if (batch_open(&batch, count, requests, &own)) {
        if (status == MPI_STATUS_IGNORE)
            status = &own;
        code = real.Waitany(count, requests, index, status);
        any_done(&batch, count, code, requests, *index, status);
        batch_close(&batch, &own);
    } else {
        code = real.Waitany(count, requests, index, status);
    }
    look_after_orphans();
    return code;
}
ALSO_AS_PMPI(Waitany);

int MPI_Testany(int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status)
{
    struct batch batch;
    MPI_Status own;
    int code;
    if (batch_open(&batch, count, requests, &own)) {
        if (status == MPI_STATUS_IGNORE)
            status = &own;
        code = real.Testany(count, requests, index, flag, status);
        if (code != MPI_SUCCESS || *flag)
            any_done(&batch, count, code, requests, *index, status);
        batch_close(&batch, &own);
    } else {
        code = real.Testany(count, requests, index, flag, status);
    }
    look_after_orphans();
    return code;
}
ALSO_AS_PMPI(Testany);

/* ---- some ---- */

static void some_done(struct batch *batch, int code, const MPI_Request *requests, int count, const int *indices)
{
    if (count == MPI_UNDEFINED || (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS))
        return;
    for (int i = 0; i < count; i++)
        one_done(batch->ours[indices[i]], code, requests[indices[i]], &batch->statuses[i]);
}

#define SOME(name)                                                                                          \
    int MPI_##name(int count, MPI_Request *requests, int *done, int *indices, MPI_Status *statuses)         \
    {                                                                                                       \
        struct batch batch;                                                                                 \
        int code;                                                                                           \
        if (batch_open(&batch, count, requests, statuses)) {                                                \
            code = real.name(count, requests, done, indices, batch.statuses);                               \
            some_done(&batch, code, requests, *done, indices);                                              \
            batch_close(&batch, statuses);                                                                  \
        } else {                                                                                            \
            code = real.name(count, requests, done, indices, statuses);                                     \
        }                                                                                                   \
        look_after_orphans();                                                                               \
        return code;                                                                                        \
    }                                                                                                       \
    ALSO_AS_PMPI(name)

SOME(Waitsome);
SOME(Testsome);
