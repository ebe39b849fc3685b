/* One sender and one receiver, and packing by hand. */
#include "pmpi.h"

/* ---- sending ---- */

#define SENDS(name)                                                                                      \
    int MPI_##name(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)      \
    {                                                                                                    \
        struct message message;                                                                          \
        if (!message_out(&message, data, count, type, to))                                               \
            return real.name(data, count, type, to, tag, comm);                                          \
        int code = real.name(message.buffer, message.bytes, MPI_BYTE, to, tag, comm);                    \
        message_drop(&message);                                                                          \
        return code;                                                                                     \
    }                                                                                                    \
    ALSO_AS_PMPI(name)

SENDS(Send);
SENDS(Bsend);
SENDS(Ssend);
SENDS(Rsend);

/* Keeps the packed bytes while MPI still needs them. A send that is complete at once needs no keeping,
 * and MPI libraries give all of those one and the same request. */
static void keep_sent(MPI_Request request, struct message *message)
{
    int is_done = 0;
    real.Request_get_status(request, &is_done, MPI_STATUS_IGNORE);
    if (is_done)
        message_drop(message);
    else
        pending_add(request, message, 0);
}

#define SENDS_LATER(name)                                                                                \
    int MPI_##name(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,      \
                   MPI_Request *request)                                                                 \
    {                                                                                                    \
        struct message message;                                                                          \
        if (!message_out(&message, data, count, type, to))                                               \
            return real.name(data, count, type, to, tag, comm, request);                                 \
        int code = real.name(message.buffer, message.bytes, MPI_BYTE, to, tag, comm, request);           \
        if (code == MPI_SUCCESS)                                                                         \
            keep_sent(*request, &message);                                                               \
        else                                                                                             \
            message_drop(&message);                                                                      \
        return code;                                                                                     \
    }                                                                                                    \
    ALSO_AS_PMPI(name)

SENDS_LATER(Isend);
SENDS_LATER(Ibsend);
SENDS_LATER(Issend);
SENDS_LATER(Irsend);

/* Packed each time that it is started. */
#define SENDS_AGAIN(name)                                                                                \
    int MPI_##name(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,      \
                   MPI_Request *request)                                                                 \
    {                                                                                                    \
        struct message message;                                                                          \
        if (!message_take(&message, data, count, type, to, TO_READ))                                     \
            return real.name(data, count, type, to, tag, comm, request);                                 \
        int code = real.name(message.buffer, message.bytes, MPI_BYTE, to, tag, comm, request);           \
        keep_persistent(code, request, &message, 0);                                                     \
        return code;                                                                                     \
    }                                                                                                    \
    ALSO_AS_PMPI(name)

static void keep_persistent(int code, const MPI_Request *request, struct message *message, int is_receive)
{
    if (code != MPI_SUCCESS) {
        message_drop(message);
        return;
    }
    struct pending *pending = pending_add(*request, message, is_receive);
    pending->is_persistent = 1;
    pending->is_active = 0;
}

SENDS_AGAIN(Send_init);
SENDS_AGAIN(Bsend_init);
SENDS_AGAIN(Ssend_init);
SENDS_AGAIN(Rsend_init);

/* ---- receiving ---- */

int MPI_Recv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status)
{
    struct message message;
    MPI_Status own;
    if (!message_in(&message, data, count, type, from)) {
        int code = real.Recv(data, count, type, from, tag, comm, status);
        look_after_orphans();
        return code;
    }
    if (status == MPI_STATUS_IGNORE)
        status = &own;
    int code = real.Recv(message.buffer, message.bytes, MPI_BYTE, from, tag, comm, status);
    if (code == MPI_SUCCESS)
        message_arrived(&message, status);
    message_drop(&message);
    look_after_orphans();
    return code;
}
ALSO_AS_PMPI(Recv);

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
    struct message message;
    if (!message_in(&message, data, count, type, from))
        return real.Irecv(data, count, type, from, tag, comm, request);
    int code = real.Irecv(message.buffer, message.bytes, MPI_BYTE, from, tag, comm, request);
    if (code == MPI_SUCCESS)
        pending_add(*request, &message, 1);
    else
        message_drop(&message);
    return code;
}
ALSO_AS_PMPI(Irecv);

/* A message that a matched probe has found. */
int MPI_Mrecv(void *data, int count, MPI_Datatype type, MPI_Message *found, MPI_Status *status)
{
    struct message message;
    MPI_Status own;
    if (!message_in(&message, data, count, type, 0)) {
        int code = real.Mrecv(data, count, type, found, status);
        look_after_orphans();
        return code;
    }
    if (status == MPI_STATUS_IGNORE)
        status = &own;
    int code = real.Mrecv(message.buffer, message.bytes, MPI_BYTE, found, status);
    if (code == MPI_SUCCESS)
        message_arrived(&message, status);
    message_drop(&message);
    look_after_orphans();
    return code;
}
ALSO_AS_PMPI(Mrecv);

int MPI_Imrecv(void *data, int count, MPI_Datatype type, MPI_Message *found, MPI_Request *request)
{
    struct message message;
    if (!message_in(&message, data, count, type, 0))
        return real.Imrecv(data, count, type, found, request);
    int code = real.Imrecv(message.buffer, message.bytes, MPI_BYTE, found, request);
    if (code == MPI_SUCCESS)
        pending_add(*request, &message, 1);
    else
        message_drop(&message);
    return code;
}
ALSO_AS_PMPI(Imrecv);

int MPI_Recv_init(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
    struct message message;
    if (!message_in(&message, data, count, type, from))
        return real.Recv_init(data, count, type, from, tag, comm, request);
    int code = real.Recv_init(message.buffer, message.bytes, MPI_BYTE, from, tag, comm, request);
    keep_persistent(code, request, &message, 1);
    return code;
}
ALSO_AS_PMPI(Recv_init);

/* ---- persistent requests ---- */

static void about_to_start(MPI_Request request)
{
    struct pending *pending = pending_find(request);
    if (!pending)
        return;
    if (!pending->is_receive)
        message_pack(&pending->message);
    pending->is_active = 1;
}

int MPI_Start(MPI_Request *request)
{
    about_to_start(*request);
    return real.Start(request);
}
ALSO_AS_PMPI(Start);

int MPI_Startall(int count, MPI_Request *requests)
{
    for (int i = 0; i < count; i++)
        about_to_start(requests[i]);
    return real.Startall(count, requests);
}
ALSO_AS_PMPI(Startall);

/* ---- both at once ---- */

int MPI_Sendrecv(const void *out, int out_count, MPI_Datatype out_type, int to, int out_tag, void *in, int in_count,
                 MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status *status)
{
    struct message sent, received;
    MPI_Status own;
    int packs = message_out(&sent, out, out_count, out_type, to);
    int unpacks = message_in(&received, in, in_count, in_type, from);
    if (packs)
        out = sent.buffer, out_count = sent.bytes, out_type = MPI_BYTE;
    if (unpacks) {
        in = received.buffer, in_count = received.bytes, in_type = MPI_BYTE;
        status = status == MPI_STATUS_IGNORE ? &own : status;
    }
    int code = real.Sendrecv(out, out_count, out_type, to, out_tag, in, in_count, in_type, from, in_tag, comm, status);
    if (unpacks) {
        if (code == MPI_SUCCESS)
            message_arrived(&received, status);
        message_drop(&received);
    }
    if (packs)
        message_drop(&sent);
    look_after_orphans();
    return code;
}
ALSO_AS_PMPI(Sendrecv);

int MPI_Sendrecv_replace(void *data, int count, MPI_Datatype type, int to, int out_tag, int from, int in_tag,
                         MPI_Comm comm, MPI_Status *status)
{
    struct message message;
    MPI_Status own;
    if (!message_in(&message, data, count, type, from == MPI_PROC_NULL ? to : from))
        return real.Sendrecv_replace(data, count, type, to, out_tag, from, in_tag, comm, status);
    if (status == MPI_STATUS_IGNORE)
        status = &own;
    message_pack(&message);
    int code = real.Sendrecv_replace(message.buffer, message.bytes, MPI_BYTE, to, out_tag, from, in_tag, comm, status);
    if (code == MPI_SUCCESS)
        message_arrived(&message, status);
    message_drop(&message);
    return code;
}
ALSO_AS_PMPI(Sendrecv_replace);

/* ---- packing by hand ---- */

/* The packed form of both MPI libraries, between machines of one kind, is the bytes of the data. */
int MPI_Pack(const void *data, int count, MPI_Datatype type, void *into, int room, int *position, MPI_Comm comm)
{
    struct ready *ready = NULL;
    if (!settings.is_off && count > 0 && !type_is_plain(type))
        ready = type_worth(type, count, TO_READ);
    if (!ready || *position < 0 || (int64_t)room - *position < (int64_t)ready->size) {
        ready_release(ready);
        return real.Pack(data, count, type, into, room, position, comm);
    }
    ready_pack(ready, data, (char *)into + *position);
    *position += (int)ready->size;
    ready_release(ready);
    return MPI_SUCCESS;
}
ALSO_AS_PMPI(Pack);

int MPI_Unpack(const void *packed, int room, int *position, void *data, int count, MPI_Datatype type, MPI_Comm comm)
{
    struct ready *ready = NULL;
    if (!settings.is_off && count > 0 && !type_is_plain(type))
        ready = type_worth(type, count, TO_WRITE);
    if (!ready || *position < 0 || (int64_t)room - *position < (int64_t)ready->size) {
        ready_release(ready);
        return real.Unpack(packed, room, position, data, count, type, comm);
    }
    ready_unpack(ready, (const char *)packed + *position, ready->size, data);
    *position += (int)ready->size;
    ready_release(ready);
    return MPI_SUCCESS;
}
ALSO_AS_PMPI(Unpack);
