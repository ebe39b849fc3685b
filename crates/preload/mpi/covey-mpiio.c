/* List I/O for MPI programs: MPI-IO through a view, as lists that reach each server in one request.
 *
 *     mpicc -shared -fPIC -O2 -o libcovey-mpiio.so covey-mpiio.c
 *     mpiexec -n 4 env LD_PRELOAD="libcovey-mpiio.so libcovey-preload.so" ./program
 *
 * It stands before the MPI library by MPI's own profiling interface, so it is compiled with the mpicc of
 * the library that the program uses. Independent and collective reads and writes of files that
 * libcovey-preload.so serves are turned into covey_readx and covey_writex: the file type is flattened
 * once, when the view is set, and memory is packed by MPI. Nobody reads before it writes, and no lock is
 * taken. Everything else goes on to the MPI library: other files, atomic mode, other data
 * representations than "native", shared file pointers, nonblocking calls, and types that it does not
 * know. COVEY_PRELOAD_REPORT=1 makes the preload library count the lists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct place {
    uint64_t offset, length;
};

struct iovec_like {
    void *base;
    size_t length;
};

typedef ssize_t list_call(int, const struct iovec_like *, size_t, const struct place *, size_t);

/* An open file, and the view that this process has on it. */
struct file {
    struct file *next;
    MPI_File handle;
    MPI_Comm comm;
    int fd;
    MPI_Offset disp;
    /* Bytes of an etype; 0 while the view is not one of ours. */
    int unit;
    /* The view's pieces in one tile, in file order, and the tile's size in the file and in data. */
    struct place *pieces;
    size_t count;
    uint64_t extent, size;
};

static struct file *files;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* More pieces than this in one tile stay with the MPI library. */
enum { PIECES_MAX = 1 << 20 };

static struct file *find(MPI_File handle)
{
    pthread_mutex_lock(&lock);
    struct file *file = files;
    while (file && file->handle != handle)
        file = file->next;
    pthread_mutex_unlock(&lock);
    return file;
}

/* ---- flattening ---- */

struct flat {
    struct place *pieces;
    size_t count, room;
    int failed;
};

static void add(struct flat *flat, int64_t offset, uint64_t length)
{
    if (flat->failed || length == 0)
        return;
    if (offset < 0 || flat->count >= PIECES_MAX) {
        flat->failed = 1;
        return;
    }
    struct place *last = flat->count ? &flat->pieces[flat->count - 1] : NULL;
    if (last && last->offset + last->length == (uint64_t)offset) {
        last->length += length;
        return;
    }
    if (flat->count == flat->room) {
        flat->room = flat->room ? 2 * flat->room : 64;
        struct place *more = realloc(flat->pieces, flat->room * sizeof *more);
        if (!more) {
            flat->failed = 1;
            return;
        }
        flat->pieces = more;
    }
    flat->pieces[flat->count++] = (struct place){(uint64_t)offset, length};
}

static void flatten(struct flat *flat, MPI_Datatype type, int64_t at);

/* `count` of a type, one extent after the other. */
static void repeat(struct flat *flat, MPI_Datatype type, int64_t at, int64_t count)
{
    MPI_Aint lower, extent;
    int size;
    MPI_Type_get_extent(type, &lower, &extent);
    MPI_Type_size(type, &size);
    if (lower == 0 && size == extent) {
        int integers, addresses, types, combiner;
        MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
        if (combiner == MPI_COMBINER_NAMED) {
            add(flat, at, (uint64_t)size * count);
            return;
        }
    }
    for (int64_t i = 0; i < count && !flat->failed; i++)
        flatten(flat, type, at + i * extent);
}

static void release(MPI_Datatype type)
{
    int integers, addresses, types, combiner;
    MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    if (combiner != MPI_COMBINER_NAMED)
        MPI_Type_free(&type);
}

static void subarray(struct flat *flat, const int *n, MPI_Datatype type, int64_t at)
{
    int dims = n[0], order = n[1 + 3 * dims];
    const int *sizes = n + 1, *parts = n + 1 + dims, *starts = n + 1 + 2 * dims;
    MPI_Aint lower, extent;
    MPI_Type_get_extent(type, &lower, &extent);
    int index[64] = {0};
    if (dims > 64) {
        flat->failed = 1;
        return;
    }
    /* The dimension in which neighbours lie side by side is the last in C, the first in Fortran. */
    int inner = order == MPI_ORDER_C ? dims - 1 : 0, step = order == MPI_ORDER_C ? -1 : 1;
    for (int d = 0; d < dims; d++)
        if (parts[d] == 0)
            return;
    for (;;) {
        int64_t place = 0, weight = 1;
        for (int i = 0, d = inner; i < dims; i++, d += step) {
            place += weight * (starts[d] + index[d]);
            weight *= sizes[d];
        }
        repeat(flat, type, at + place * extent, parts[inner]);
        int d = inner, i = 1;
        for (; i < dims; i++) {
            d += step;
            if (++index[d] < parts[d])
                break;
            index[d] = 0;
        }
        if (i >= dims || flat->failed)
            return;
    }
}

static void flatten(struct flat *flat, MPI_Datatype type, int64_t at)
{
    int integers, addresses, types, combiner;
    MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    if (combiner == MPI_COMBINER_NAMED) {
        int size;
        MPI_Type_size(type, &size);
        add(flat, at, size);
        return;
    }
    int *n = calloc(integers + 1, sizeof *n);
    MPI_Aint *a = calloc(addresses + 1, sizeof *a);
    MPI_Datatype *t = calloc(types + 1, sizeof *t);
    if (!n || !a || !t || MPI_Type_get_contents(type, integers, addresses, types, n, a, t) != MPI_SUCCESS) {
        flat->failed = 1;
        free(n), free(a), free(t);
        return;
    }
    MPI_Aint lower = 0, extent = 0;
    if (types > 0)
        MPI_Type_get_extent(t[0], &lower, &extent);
    switch (combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
        flatten(flat, t[0], at);
        break;
    case MPI_COMBINER_CONTIGUOUS:
        repeat(flat, t[0], at, n[0]);
        break;
    case MPI_COMBINER_VECTOR:
        for (int i = 0; i < n[0] && !flat->failed; i++)
            repeat(flat, t[0], at + (int64_t)i * n[2] * extent, n[1]);
        break;
    case MPI_COMBINER_HVECTOR:
        for (int i = 0; i < n[0] && !flat->failed; i++)
            repeat(flat, t[0], at + i * (int64_t)a[0], n[1]);
        break;
    case MPI_COMBINER_INDEXED:
        for (int i = 0; i < n[0] && !flat->failed; i++)
            repeat(flat, t[0], at + (int64_t)n[1 + n[0] + i] * extent, n[1 + i]);
        break;
    case MPI_COMBINER_HINDEXED:
        for (int i = 0; i < n[0] && !flat->failed; i++)
            repeat(flat, t[0], at + a[i], n[1 + i]);
        break;
    case MPI_COMBINER_INDEXED_BLOCK:
        for (int i = 0; i < n[0] && !flat->failed; i++)
            repeat(flat, t[0], at + (int64_t)n[2 + i] * extent, n[1]);
        break;
    case MPI_COMBINER_HINDEXED_BLOCK:
        for (int i = 0; i < n[0] && !flat->failed; i++)
            repeat(flat, t[0], at + a[i], n[1]);
        break;
    case MPI_COMBINER_STRUCT:
        for (int i = 0; i < n[0] && !flat->failed; i++)
            repeat(flat, t[i], at + a[i], n[1 + i]);
        break;
    case MPI_COMBINER_SUBARRAY:
        subarray(flat, n, t[0], at);
        break;
    default:
        flat->failed = 1;
    }
    for (int i = 0; i < types; i++)
        release(t[i]);
    free(n), free(a), free(t);
}

/* Takes a view, or leaves it to the MPI library. */
static void take_view(struct file *file, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype, const char *how)
{
    MPI_Aint lower, extent;
    int unit, size;
    struct flat flat = {0};
    free(file->pieces);
    file->pieces = NULL;
    file->unit = 0;
    MPI_Type_size(etype, &unit);
    MPI_Type_size(filetype, &size);
    MPI_Type_get_extent(filetype, &lower, &extent);
    if (strcmp(how, "native") != 0 || lower < 0 || unit <= 0 || size <= 0 || extent <= 0)
        return;
    flatten(&flat, filetype, 0);
    /* Data goes to the file in the order of the type: only types in file order are taken. */
    for (size_t i = 1; i < flat.count && !flat.failed; i++)
        flat.failed = flat.pieces[i].offset < flat.pieces[i - 1].offset + flat.pieces[i - 1].length;
    if (flat.failed) {
        free(flat.pieces);
        return;
    }
    file->disp = disp;
    file->pieces = flat.pieces;
    file->count = flat.count;
    file->extent = (uint64_t)extent;
    file->size = (uint64_t)size;
    file->unit = unit;
}

/* The places of `bytes` bytes from an offset in etypes on; NULL when there are too many. */
static struct place *places(const struct file *file, MPI_Offset offset, uint64_t bytes, size_t *count)
{
    uint64_t from = (uint64_t)offset * file->unit;
    uint64_t tile = from / file->size, within = from % file->size;
    size_t at = 0, room = 0;
    struct place *list = NULL;
    *count = 0;
    while (within >= file->pieces[at].length)
        within -= file->pieces[at++].length;
    while (bytes > 0) {
        uint64_t start = file->disp + tile * file->extent + file->pieces[at].offset + within;
        uint64_t length = file->pieces[at].length - within;
        length = length < bytes ? length : bytes;
        if (*count && list[*count - 1].offset + list[*count - 1].length == start) {
            list[*count - 1].length += length;
        } else {
            if (*count == room) {
                room = room ? 2 * room : 64;
                struct place *more = *count < PIECES_MAX ? realloc(list, room * sizeof *list) : NULL;
                if (!more) {
                    free(list);
                    return NULL;
                }
                list = more;
            }
            list[(*count)++] = (struct place){start, length};
        }
        bytes -= length;
        within = 0;
        if (++at == file->count)
            at = 0, tile++;
    }
    return list;
}

/* Moves data through the view as one list. 0 when the MPI library has to do it, 1 done, -1 failed. */
static int move(MPI_File handle, MPI_Offset offset, void *data, int count, MPI_Datatype type, MPI_Status *status, int writes)
{
    static list_call *readx, *writex;
    struct file *file = find(handle);
    int atomic = 0, size;
    if (!file || !file->unit || offset < 0)
        return 0;
    if (!readx) {
        writex = (list_call *)dlsym(RTLD_DEFAULT, "covey_writex");
        readx = (list_call *)dlsym(RTLD_DEFAULT, "covey_readx");
    }
    MPI_File_get_atomicity(handle, &atomic);
    MPI_Type_size(type, &size);
    uint64_t bytes = (uint64_t)size * count;
    if (atomic || !readx || !writex || bytes > INT32_MAX || bytes % file->unit)
        return 0;
    size_t list_count = 0;
    struct place *list = bytes ? places(file, offset, bytes, &list_count) : NULL;
    char *packed = malloc(bytes + 1);
    if ((bytes && !list) || !packed) {
        free(list), free(packed);
        return 0;
    }
    int position = 0, room = (int)bytes;
    struct iovec_like memory = {packed, bytes};
    ssize_t done;
    if (writes) {
        MPI_Pack(data, count, type, packed, room, &position, MPI_COMM_SELF);
        done = bytes ? writex(file->fd, &memory, 1, list, list_count) : 0;
    } else {
        done = bytes ? readx(file->fd, &memory, 1, list, list_count) : 0;
        if (done == (ssize_t)bytes)
            MPI_Unpack(packed, room, &position, data, count, type, MPI_COMM_SELF);
    }
    free(list), free(packed);
    if (done < 0)
        return -1;
    if (done < (ssize_t)bytes)
        return 0; /* The end of the file: the MPI library knows how to say so. */
    if (status != MPI_STATUS_IGNORE) {
        MPI_Status_set_elements(status, MPI_BYTE, (int)bytes);
        MPI_Status_set_cancelled(status, 0);
    }
    return 1;
}

/* ---- the calls ---- */

/* Opens the file once more, beside the MPI library: Covey's files are the same through any descriptor. */
static int open_beside(const char *name, int mode)
{
    int (*is_ours)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "covey_is_ours");
    if (!is_ours || mode & (MPI_MODE_SEQUENTIAL | MPI_MODE_APPEND))
        return -1;
    /* ROMIO takes "ufs:PATH". */
    const char *colon = strchr(name, ':'), *slash = strchr(name, '/');
    const char *path = colon && (!slash || colon < slash) ? colon + 1 : name;
    int how = mode & MPI_MODE_RDWR ? O_RDWR : mode & MPI_MODE_WRONLY ? O_WRONLY : O_RDONLY;
    int fd = open(path, how | O_CLOEXEC);
    if (fd >= 0 && !is_ours(fd)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

int MPI_File_open(MPI_Comm comm, const char *name, int mode, MPI_Info info, MPI_File *handle)
{
    int code = PMPI_File_open(comm, name, mode, info, handle);
    if (code != MPI_SUCCESS)
        return code;
    struct file *file = calloc(1, sizeof *file);
    int mine, all = 0;
    MPI_Comm ours;
    if (!file || MPI_Comm_dup(comm, &ours) != MPI_SUCCESS) {
        free(file);
        return code;
    }
    file->fd = open_beside(name, mode);
    mine = file->fd >= 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, ours);
    if (!all) {
        if (mine)
            close(file->fd);
        free(file);
        MPI_Comm_free(&ours);
        return code;
    }
    file->handle = *handle;
    file->comm = ours;
    take_view(file, 0, MPI_BYTE, MPI_BYTE, "native");
    pthread_mutex_lock(&lock);
    file->next = files;
    files = file;
    pthread_mutex_unlock(&lock);
    return code;
}

int MPI_File_close(MPI_File *handle)
{
    struct file *gone = NULL;
    pthread_mutex_lock(&lock);
    for (struct file **at = &files; *at; at = &(*at)->next)
        if ((*at)->handle == *handle) {
            gone = *at;
            *at = gone->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (gone) {
        close(gone->fd);
        MPI_Comm_free(&gone->comm);
        free(gone->pieces);
        free(gone);
    }
    return PMPI_File_close(handle);
}

int MPI_File_set_view(MPI_File handle, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype, const char *how, MPI_Info info)
{
    int code = PMPI_File_set_view(handle, disp, etype, filetype, how, info);
    struct file *file = find(handle);
    if (code == MPI_SUCCESS && file)
        take_view(file, disp, etype, filetype, how);
    return code;
}

/* A failure of ours is told by the MPI library's own way, which tries again and fails in its words. */
#define AT(name, buffer, writes)                                                                           \
    int MPI_File_##name(MPI_File handle, MPI_Offset offset, buffer data, int count, MPI_Datatype type,    \
                        MPI_Status *status)                                                                \
    {                                                                                                      \
        if (move(handle, offset, (void *)data, count, type, status, writes) == 1)                         \
            return MPI_SUCCESS;                                                                            \
        return PMPI_File_##name(handle, offset, data, count, type, status);                               \
    }

AT(write_at, const void *, 1)
AT(read_at, void *, 0)

/* All ranks must take the same way: a collective call is ours only when it is on every rank. */
static int all_moved(MPI_File handle, int moved)
{
    struct file *file = find(handle);
    int all = 0;
    if (file)
        MPI_Allreduce(&moved, &all, 1, MPI_INT, MPI_MIN, file->comm);
    return all;
}

#define AT_ALL(name, buffer, writes)                                                                       \
    int MPI_File_##name(MPI_File handle, MPI_Offset offset, buffer data, int count, MPI_Datatype type,    \
                        MPI_Status *status)                                                                \
    {                                                                                                      \
        int moved = move(handle, offset, (void *)data, count, type, status, writes);                      \
        if (all_moved(handle, moved) == 1)                                                                 \
            return MPI_SUCCESS;                                                                            \
        return PMPI_File_##name(handle, offset, data, count, type, status);                               \
    }

AT_ALL(write_at_all, const void *, 1)
AT_ALL(read_at_all, void *, 0)

/* The individual file pointer is the MPI library's: it is asked, and moved on. */
static int advance(MPI_File handle, MPI_Datatype type, int count)
{
    struct file *file = find(handle);
    int size;
    MPI_Type_size(type, &size);
    return MPI_File_seek(handle, (MPI_Offset)size * count / file->unit, MPI_SEEK_CUR);
}

#define HERE(name, buffer, writes, together)                                                               \
    int MPI_File_##name(MPI_File handle, buffer data, int count, MPI_Datatype type, MPI_Status *status)   \
    {                                                                                                      \
        MPI_Offset offset = -1;                                                                            \
        if (find(handle))                                                                                  \
            MPI_File_get_position(handle, &offset);                                                        \
        int moved = move(handle, offset, (void *)data, count, type, status, writes);                      \
        if ((together ? all_moved(handle, moved) : moved) == 1)                                            \
            return advance(handle, type, count);                                                           \
        return PMPI_File_##name(handle, data, count, type, status);                                       \
    }

HERE(write, const void *, 1, 0)
HERE(read, void *, 0, 0)
HERE(write_all, const void *, 1, 1)
HERE(read_all, void *, 0, 1)
