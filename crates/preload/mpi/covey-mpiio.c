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
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "covey-mpiio-types.h"

typedef ssize_t read_call(int, const void *, size_t, uint64_t, uint64_t, void *, size_t);
typedef ssize_t write_call(int, const void *, size_t, uint64_t, uint64_t, const void *, size_t);

/* An open file, and the view that this process has on it. */
struct file {
    struct file *next;
    MPI_File handle;
    /* Ours alone, and its errors are answered, not fatal. */
    MPI_Comm comm;
    int fd, mode;
    /* Held by a call that moves the file pointer: threads' calls are one after another. */
    pthread_mutex_t pointer;
    MPI_Offset disp;
    /* Bytes of an etype; 0 while the view is not one of ours. */
    int unit;
    /* The file type as a layout: docs/protocol/layout.md. */
    unsigned char *layout;
    size_t layout_bytes;
};

static struct file *files;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct file *find(MPI_File handle)
{
    pthread_mutex_lock(&lock);
    struct file *file = files;
    while (file && file->handle != handle)
        file = file->next;
    pthread_mutex_unlock(&lock);
    return file;
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

/* Whether values of a type lie in memory as they are packed: named types without a hole, in a row. */
static int is_plain(MPI_Datatype type)
{
    int integers, addresses, types, combiner, size;
    MPI_Aint lower, extent;
    if (!envelope(type, &integers, &addresses, &types, &combiner))
        return 0;
    if (combiner == MPI_COMBINER_NAMED) {
        MPI_Type_get_extent(type, &lower, &extent);
        MPI_Type_size(type, &size);
        return lower == 0 && extent == size;
    }
    /* These two have few numbers. */
    if ((combiner != MPI_COMBINER_DUP && combiner != MPI_COMBINER_CONTIGUOUS) || integers > 1 || addresses || types != 1)
        return 0;
    int number;
    MPI_Aint none;
    MPI_Datatype inner;
    MPI_Type_get_contents(type, integers, 0, 1, &number, &none, &inner);
    int plain = is_plain(inner);
    release(inner);
    return plain;
}

/* Moves data through the view with one call. 0 when the MPI library has to do it, 1 done, else what failed, as a negative
 * errno. */
static int move(MPI_File handle, MPI_Offset offset, void *data, int count, MPI_Datatype type, MPI_Status *status, int writes)
{
    static read_call *read_view;
    static write_call *write_view;
    struct file *file = find(handle);
    int atomic = 0, size;
    if (!file || !file->unit || offset < 0 || count < 0 || type == MPI_DATATYPE_NULL)
        return 0;
    if (file->mode & (writes ? MPI_MODE_RDONLY : MPI_MODE_WRONLY))
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
    int plain = is_plain(type);
    char *packed = plain ? data : malloc(bytes + 1);
    if (!packed && bytes)
        return 0;
    int position = 0, room = (int)bytes;
    uint64_t from = (uint64_t)offset * file->unit;
    ssize_t done = 0;
    int failure = 0;
    if (bytes && writes) {
        /* What cannot be packed, a type that was not committed, the MPI library complains about. */
        if (plain || MPI_Pack(data, count, type, packed, room, &position, file->comm) == MPI_SUCCESS)
            done = write_view(file->fd, file->layout, file->layout_bytes, file->disp, from, packed, bytes);
        failure = done < 0 ? -errno : 0;
    } else if (bytes) {
        done = read_view(file->fd, file->layout, file->layout_bytes, file->disp, from, packed, bytes);
        failure = done < 0 ? -errno : 0;
        if (done == (ssize_t)bytes && !plain &&
            MPI_Unpack(packed, room, &position, data, count, type, file->comm) != MPI_SUCCESS)
            done = 0;
    }
    if (!plain)
        free(packed);
    if (failure)
        return failure;
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
    MPI_Comm_set_errhandler(ours, MPI_ERRORS_RETURN);
    pthread_mutex_init(&file->pointer, NULL);
    file->mode = mode;
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
        pthread_mutex_destroy(&gone->pointer);
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

/* The class of a failure that the MPI library need not find out once more: one that tries again on a full file system may
 * tell of success. 0 for others, which it tells in its words. */
static int class_of(int moved)
{
    switch (-moved) {
    case ENOSPC:
        return MPI_ERR_NO_SPACE;
    case EDQUOT:
        return MPI_ERR_QUOTA;
    case EIO:
    case EFBIG:
        return MPI_ERR_IO;
    default:
        return 0;
    }
}

/* Tells it as the file's error handler wants it. */
static int failed(MPI_File handle, int class)
{
    MPI_File_call_errhandler(handle, class);
    return class;
}

#define AT(name, buffer, writes)                                                                           \
    int MPI_File_##name(MPI_File handle, MPI_Offset offset, buffer data, int count, MPI_Datatype type,    \
                        MPI_Status *status)                                                                \
    {                                                                                                      \
        int moved = move(handle, offset, (void *)data, count, type, status, writes);                      \
        if (moved == 1)                                                                                    \
            return MPI_SUCCESS;                                                                            \
        if (class_of(moved))                                                                               \
            return failed(handle, class_of(moved));                                                        \
        return PMPI_File_##name(handle, offset, data, count, type, status);                               \
    }

AT(write_at, const void *, 1)
AT(read_at, void *, 0)

/* All ranks must take the same way: a collective call is ours only when it is on every rank, and a failure is all ranks'. */
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
        moved = all_moved(handle, moved);                                                                  \
        if (moved == 1)                                                                                    \
            return MPI_SUCCESS;                                                                            \
        if (class_of(moved))                                                                               \
            return failed(handle, class_of(moved));                                                        \
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

static void hold(struct file *file, int together)
{
    /* Not while others are waited for: what they wait for may be a thread of this rank. */
    if (file && !together)
        pthread_mutex_lock(&file->pointer);
}

static void let_go(struct file *file, int together)
{
    if (file && !together)
        pthread_mutex_unlock(&file->pointer);
}

#define HERE(name, buffer, writes, together)                                                               \
    int MPI_File_##name(MPI_File handle, buffer data, int count, MPI_Datatype type, MPI_Status *status)   \
    {                                                                                                      \
        MPI_Offset offset = -1;                                                                            \
        struct file *file = find(handle);                                                                  \
        hold(file, together);                                                                              \
        if (file)                                                                                          \
            MPI_File_get_position(handle, &offset);                                                        \
        int code, moved = move(handle, offset, (void *)data, count, type, status, writes);                \
        if (together)                                                                                      \
            moved = all_moved(handle, moved);                                                              \
        if (moved == 1)                                                                                    \
            code = advance(handle, type, count);                                                           \
        else if (class_of(moved))                                                                          \
            code = failed(handle, class_of(moved));                                                        \
        else                                                                                               \
            code = PMPI_File_##name(handle, data, count, type, status);                                   \
        let_go(file, together);                                                                            \
        return code;                                                                                       \
    }

HERE(write, const void *, 1, 0)
HERE(read, void *, 0, 0)
HERE(write_all, const void *, 1, 1)
HERE(read_all, void *, 0, 1)
