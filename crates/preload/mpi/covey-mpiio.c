/* Views for MPI programs: MPI-IO through a view, with one request to each server.
 *
 *     mpicc -shared -fPIC -O2 -o libcovey-mpiio.so covey-mpiio.c
 *     mpiexec -n 4 env LD_PRELOAD="libcovey-mpiio.so libcovey-preload.so" ./program
 *
 * It stands before the MPI library by MPI's own profiling interface, so it is compiled with the mpicc of
 * the library that the program uses. Independent and collective reads and writes of files that
 * libcovey-preload.so serves are carried out by covey_read_view and covey_write_view: the file type is
 * described once, when the view is set; the description goes to the servers, which walk it; memory is
 * packed by MPI. Nobody reads before it writes, and no lock is taken. Everything else goes on to the MPI
 * library: other files, atomic mode, other data representations than "native", shared file pointers,
 * nonblocking calls, and types that cannot be described or whose data is not in file order.
 * COVEY_PRELOAD_REPORT=1 makes the preload library count the calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef ssize_t read_call(int, const void *, size_t, uint64_t, uint64_t, void *, size_t);
typedef ssize_t write_call(int, const void *, size_t, uint64_t, uint64_t, const void *, size_t);

/* An open file, and the view that this process has on it. */
struct file {
    struct file *next;
    MPI_File handle;
    MPI_Comm comm;
    int fd;
    MPI_Offset disp;
    /* Bytes of an etype; 0 while the view is not one of ours. */
    int unit;
    /* The file type as a layout: docs/protocol/layout.md. */
    unsigned char *layout;
    size_t layout_bytes;
};

static struct file *files;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Longer descriptions stay with the MPI library. */
enum { LAYOUT_BYTES_MAX = 1 << 20 };

static struct file *find(MPI_File handle)
{
    pthread_mutex_lock(&lock);
    struct file *file = files;
    while (file && file->handle != handle)
        file = file->next;
    pthread_mutex_unlock(&lock);
    return file;
}

/* ---- describing ---- */

/* A layout as it is written. Nodes are numbered from 0; a node uses those before it. */
struct layout {
    unsigned char *bytes;
    size_t count, room;
    int nodes, failed;
};

static void put(struct layout *out, uint64_t number, int bytes)
{
    if (out->failed)
        return;
    if (out->count + 8 > out->room) {
        size_t room = out->room ? 2 * out->room : 256;
        unsigned char *more = room <= LAYOUT_BYTES_MAX ? realloc(out->bytes, room) : NULL;
        if (!more) {
            out->failed = 1;
            return;
        }
        out->bytes = more, out->room = room;
    }
    for (int i = 0; i < bytes; i++)
        out->bytes[out->count++] = (unsigned char)(number >> (8 * i));
}

static int begun(struct layout *out, int kind)
{
    out->failed |= out->nodes >= UINT16_MAX;
    put(out, (uint64_t)kind, 1);
    return out->nodes++;
}

/* `count` copies of a node, `stride` bytes apart. */
static int repeated(struct layout *out, int inner, uint64_t count, int64_t stride)
{
    int node = begun(out, 2);
    put(out, count, 8), put(out, 1, 8), put(out, (uint64_t)stride, 8), put(out, (uint64_t)inner, 2);
    return node;
}

static int resized(struct layout *out, int inner, int64_t lower, int64_t extent)
{
    int node = begun(out, 6);
    put(out, (uint64_t)lower, 8), put(out, (uint64_t)extent, 8), put(out, (uint64_t)inner, 2);
    return node;
}

/* One node at a displacement. */
static int placed(struct layout *out, int inner, int64_t at)
{
    int node = begun(out, 4);
    put(out, 1, 8), put(out, 1, 4), put(out, (uint64_t)at, 8), put(out, (uint64_t)inner, 2);
    return node;
}

static int bytes(struct layout *out, uint64_t count)
{
    int byte = begun(out, 1);
    put(out, 0, 1);
    int node = begun(out, 2);
    put(out, 1, 8), put(out, count, 8), put(out, 0, 8), put(out, (uint64_t)byte, 2);
    return node;
}

static int describe(struct layout *out, MPI_Datatype type);

/* A type with the bounds that the MPI library gives it: whatever stands in a row is an extent apart. */
static int bounded(struct layout *out, MPI_Datatype type)
{
    MPI_Aint lower, extent;
    MPI_Type_get_extent(type, &lower, &extent);
    return resized(out, describe(out, type), lower, extent);
}

static void release(MPI_Datatype type)
{
    int integers, addresses, types, combiner;
    MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    if (combiner != MPI_COMBINER_NAMED)
        MPI_Type_free(&type);
}

static int subarray(struct layout *out, const int *n, MPI_Datatype type)
{
    int dims = n[0], order = n[1 + 3 * dims];
    const int *sizes = n + 1, *parts = n + 1 + dims, *starts = n + 1 + 2 * dims;
    MPI_Aint lower, extent;
    MPI_Type_get_extent(type, &lower, &extent);
    int node = describe(out, type);
    int64_t stride = extent, start = 0;
    /* The dimension in which neighbours lie side by side is the last in C, the first in Fortran. */
    for (int i = 0; i < dims; i++) {
        int d = order == MPI_ORDER_C ? dims - 1 - i : i;
        node = repeated(out, node, (uint64_t)parts[d], stride);
        if (__builtin_mul_overflow(stride, starts[d], &(int64_t){0}) ||
            __builtin_add_overflow(start, stride * starts[d], &start) ||
            __builtin_mul_overflow(stride, sizes[d], &stride))
            out->failed = 1;
    }
    return resized(out, placed(out, node, start), lower, stride);
}

/* The list of an indexed type: `length` copies, or one for each block, at displacements in bytes. */
struct blocks {
    int count;
    const int *lengths;
    int length;
    const int *scaled;
    const MPI_Aint *plain;
    MPI_Aint extent;
};

static int listed(struct layout *out, int inner, const struct blocks *of)
{
    int node = begun(out, 3);
    put(out, (uint64_t)of->count, 4);
    for (int i = 0; i < of->count; i++) {
        int64_t at = of->scaled ? (int64_t)of->scaled[i] * of->extent : of->plain[i];
        put(out, (uint64_t)(of->lengths ? of->lengths[i] : of->length), 8), put(out, (uint64_t)at, 8);
    }
    put(out, (uint64_t)inner, 2);
    return node;
}

static int structure(struct layout *out, const int *n, const MPI_Aint *a, const MPI_Datatype *t)
{
    int *inner = calloc(n[0] + 1, sizeof *inner);
    if (!inner) {
        out->failed = 1;
        return 0;
    }
    for (int i = 0; i < n[0] && !out->failed; i++)
        inner[i] = bounded(out, t[i]);
    int node = begun(out, 5);
    put(out, (uint64_t)n[0], 4);
    for (int i = 0; i < n[0]; i++)
        put(out, (uint64_t)n[1 + i], 8), put(out, (uint64_t)a[i], 8), put(out, (uint64_t)inner[i], 2);
    free(inner);
    return node;
}

/* A value and an int, as a struct of C. */
static int pair(struct layout *out, MPI_Datatype type, int size, MPI_Aint extent)
{
    const struct {
        MPI_Datatype type;
        size_t second;
    } known[] = {
        {MPI_SHORT_INT, offsetof(struct { short first; int second; }, second)},
        {MPI_LONG_INT, offsetof(struct { long first; int second; }, second)},
        {MPI_DOUBLE_INT, offsetof(struct { double first; int second; }, second)},
        {MPI_LONG_DOUBLE_INT, offsetof(struct { long double first; int second; }, second)},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].type == type) {
            int first = bytes(out, (uint64_t)size - sizeof(int)), second = bytes(out, sizeof(int));
            int node = begun(out, 5);
            put(out, 2, 4);
            put(out, 1, 8), put(out, 0, 8), put(out, (uint64_t)first, 2);
            put(out, 1, 8), put(out, known[i].second, 8), put(out, (uint64_t)second, 2);
            return resized(out, node, 0, extent);
        }
    out->failed = 1;
    return 0;
}

/* Writes a type as a node, behind those it uses; answers its number. */
static int describe(struct layout *out, MPI_Datatype type)
{
    int integers, addresses, types, combiner, node = 0;
    MPI_Aint lower = 0, extent = 0;
    if (out->failed)
        return 0;
    MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    if (combiner == MPI_COMBINER_NAMED) {
        int size;
        MPI_Type_size(type, &size);
        MPI_Type_get_extent(type, &lower, &extent);
        /* A pair may have a hole in it. */
        if (size != extent)
            return pair(out, type, size, extent);
        return bytes(out, (uint64_t)size);
    }
    int *n = calloc(integers + 1, sizeof *n);
    MPI_Aint *a = calloc(addresses + 1, sizeof *a);
    MPI_Datatype *t = calloc(types + 1, sizeof *t);
    if (!n || !a || !t || MPI_Type_get_contents(type, integers, addresses, types, n, a, t) != MPI_SUCCESS) {
        out->failed = 1;
        free(n), free(a), free(t);
        return 0;
    }
    if (types > 0)
        MPI_Type_get_extent(t[0], &lower, &extent);
    struct blocks blocks = {n[0], n + 1, 0, NULL, a, extent};
    switch (combiner) {
    case MPI_COMBINER_DUP:
        node = describe(out, t[0]);
        break;
    case MPI_COMBINER_RESIZED:
        node = resized(out, describe(out, t[0]), a[0], a[1]);
        break;
    case MPI_COMBINER_CONTIGUOUS:
        node = repeated(out, describe(out, t[0]), (uint64_t)n[0], extent);
        break;
    case MPI_COMBINER_VECTOR:
        node = repeated(out, describe(out, t[0]), (uint64_t)n[1], extent);
        node = repeated(out, node, (uint64_t)n[0], (int64_t)n[2] * extent);
        break;
    case MPI_COMBINER_HVECTOR:
        node = repeated(out, describe(out, t[0]), (uint64_t)n[1], extent);
        node = repeated(out, node, (uint64_t)n[0], a[0]);
        break;
    case MPI_COMBINER_INDEXED:
        blocks.scaled = n + 1 + n[0];
        node = listed(out, bounded(out, t[0]), &blocks);
        break;
    case MPI_COMBINER_HINDEXED:
        node = listed(out, bounded(out, t[0]), &blocks);
        break;
    case MPI_COMBINER_INDEXED_BLOCK:
        blocks.scaled = n + 2;
        /* fall through */
    case MPI_COMBINER_HINDEXED_BLOCK:
        blocks.lengths = NULL, blocks.length = n[1];
        node = listed(out, bounded(out, t[0]), &blocks);
        break;
    case MPI_COMBINER_STRUCT:
        node = structure(out, n, a, t);
        break;
    case MPI_COMBINER_SUBARRAY:
        node = subarray(out, n, t[0]);
        break;
    default:
        out->failed = 1;
    }
    for (int i = 0; i < types; i++)
        release(t[i]);
    free(n), free(a), free(t);
    return node;
}

/* The whole layout of a type; false for one that cannot be described, or whose data is not in file order. */
static int layout_of(struct layout *out, MPI_Datatype type)
{
    int (*is_view)(const void *, size_t, uint64_t, uint64_t) =
        (int (*)(const void *, size_t, uint64_t, uint64_t))dlsym(RTLD_DEFAULT, "covey_is_view");
    MPI_Aint lower, extent;
    int size;
    MPI_Type_size(type, &size);
    MPI_Type_get_extent(type, &lower, &extent);
    put(out, 1, 1), put(out, 0, 2);
    bounded(out, type);
    if (out->failed || !is_view)
        return 0;
    out->bytes[1] = (unsigned char)out->nodes, out->bytes[2] = (unsigned char)(out->nodes >> 8);
    return is_view(out->bytes, out->count, (uint64_t)size, (uint64_t)extent) == 1;
}

/* Takes a view, or leaves it to the MPI library. */
static void take_view(struct file *file, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype, const char *how)
{
    MPI_Aint lower, extent;
    int unit, size;
    struct layout layout = {0};
    free(file->layout);
    file->layout = NULL;
    file->unit = 0;
    MPI_Type_size(etype, &unit);
    MPI_Type_size(filetype, &size);
    MPI_Type_get_extent(filetype, &lower, &extent);
    if (strcmp(how, "native") != 0 || lower < 0 || unit <= 0 || size <= 0 || extent <= 0)
        return;
    if (!layout_of(&layout, filetype)) {
        free(layout.bytes);
        return;
    }
    file->disp = disp;
    file->layout = layout.bytes;
    file->layout_bytes = layout.count;
    file->unit = unit;
}

/* Moves data through the view with one call. 0 when the MPI library has to do it, 1 done, -1 failed. */
static int move(MPI_File handle, MPI_Offset offset, void *data, int count, MPI_Datatype type, MPI_Status *status, int writes)
{
    static read_call *read_view;
    static write_call *write_view;
    struct file *file = find(handle);
    int atomic = 0, size;
    if (!file || !file->unit || offset < 0)
        return 0;
    if (!read_view) {
        write_view = (write_call *)dlsym(RTLD_DEFAULT, "covey_write_view");
        read_view = (read_call *)dlsym(RTLD_DEFAULT, "covey_read_view");
    }
    MPI_File_get_atomicity(handle, &atomic);
    MPI_Type_size(type, &size);
    uint64_t bytes = (uint64_t)size * count;
    if (atomic || !read_view || !write_view || bytes > INT32_MAX || bytes % file->unit)
        return 0;
    char *packed = malloc(bytes + 1);
    if (!packed)
        return 0;
    int position = 0, room = (int)bytes;
    uint64_t from = (uint64_t)offset * file->unit;
    ssize_t done = 0;
    if (bytes && writes) {
        MPI_Pack(data, count, type, packed, room, &position, MPI_COMM_SELF);
        done = write_view(file->fd, file->layout, file->layout_bytes, file->disp, from, packed, bytes);
    } else if (bytes) {
        done = read_view(file->fd, file->layout, file->layout_bytes, file->disp, from, packed, bytes);
        if (done == (ssize_t)bytes)
            MPI_Unpack(packed, room, &position, data, count, type, MPI_COMM_SELF);
    }
    free(packed);
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
        free(gone->layout);
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
