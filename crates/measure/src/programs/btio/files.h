/* The four ways in which BTIO writes its solution, and reads it back:
 *
 *     full     one file, by collective calls of MPI-IO through a view of the cells of a process
 *     simple   one file, through the same view, by calls of each process for itself
 *     fortran  one file, each row of points of a cell written where it belongs, as direct access does
 *     epio     a file for each process, of records as Fortran's sequential access writes them
 *
 * The one file holds a whole grid [z][y][x][5] after the other. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

enum option { NONE, FULL, SIMPLE, FORTRAN, EPIO, OPTIONS };

static const char *const OPTION_NAMES[OPTIONS] = { "none", "full", "simple", "fortran", "epio" };

struct file {
    enum option option;
    char name[4096];
    MPI_File handle;
    int fd;
    /* A point; the values of the cells, from the first one's; and their places in the file. */
    MPI_Datatype element, inner, view;
    /* Points of this process. */
    long points;
    /* A record. */
    char *packed;
};

static void tried(const struct file *file, const char *act, int code)
{
    char what[5000], why[MPI_MAX_ERROR_STRING];
    int length;
    if (code == MPI_SUCCESS)
        return;
    snprintf(what, sizeof what, "%s %s", act, file->name);
    MPI_Error_string(code, why, &length);
    abandon(what, why);
}

static void tried_call(const struct file *file, const char *act, int has_worked)
{
    char what[5000];
    if (has_worked)
        return;
    snprintf(what, sizeof what, "%s %s", act, file->name);
    abandon(what, errno ? strerror(errno) : "the file is too short");
}

/* All cells of a process as one type: of its arrays, or of the file. */
static MPI_Datatype joined(const struct grid *grid, MPI_Datatype element, int is_of_file)
{
    MPI_Datatype *types = memory(grid->cells * sizeof *types), all;
    MPI_Aint *places = memory(grid->cells * sizeof *places);
    int *ones = memory(grid->cells * sizeof *ones);
    for (int c = 0; c < grid->cells; c++) {
        const struct cell *cell = &grid->cell[c];
        int sizes[3], parts[3], starts[3];
        for (int d = 0; d < 3; d++) {
            int axis = 2 - d;
            parts[d] = cell->size[axis];
            sizes[d] = is_of_file ? grid->side : parts[d] + 2 * GHOSTS;
            starts[d] = is_of_file ? cell->low[axis] : GHOSTS;
        }
        MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, element, &types[c]);
        ones[c] = 1, places[c] = is_of_file ? 0 : (MPI_Aint)((cell->u - grid->u) * sizeof(point));
    }
    MPI_Type_create_struct(grid->cells, ones, places, types, &all);
    MPI_Type_commit(&all);
    for (int c = 0; c < grid->cells; c++)
        MPI_Type_free(&types[c]);
    free(types), free(places), free(ones);
    return all;
}

static struct file file_of(const struct grid *grid, enum option option, const char *directory)
{
    struct file file = { .option = option, .fd = -1 };
    int length = snprintf(file.name, sizeof file.name - 16, "%s/btio.%s.out", directory, OPTION_NAMES[option]);
    if (length >= (int)sizeof file.name - 16)
        abandon("write there", "the name of the directory is too long");
    if (option == EPIO)
        sprintf(file.name + length, ".%04d", grid->rank);
    long largest = 0;
    for (int c = 0; c < grid->cells; c++) {
        const int *size = grid->cell[c].size;
        long points = (long)size[0] * size[1] * size[2];
        file.points += points;
        largest = points > largest ? points : largest;
    }
    file.packed = memory(largest * sizeof(point) + 2 * sizeof(int32_t));
    MPI_Type_contiguous(VALUES, MPI_DOUBLE, &file.element);
    MPI_Type_commit(&file.element);
    file.inner = joined(grid, file.element, 0), file.view = joined(grid, file.element, 1);
    return file;
}

static void forget(struct file *file)
{
    MPI_Type_free(&file->view), MPI_Type_free(&file->inner), MPI_Type_free(&file->element);
    free(file->packed);
}

static int is_parallel(const struct file *file)
{
    return file->option == FULL || file->option == SIMPLE;
}

static void open_parallel(struct file *file, int writes)
{
    MPI_Info info;
    MPI_Info_create(&info);
    if (file->option == FULL)
        MPI_Info_set(info, "collective_buffering", "true");
    int mode = writes ? MPI_MODE_WRONLY | MPI_MODE_CREATE : MPI_MODE_RDONLY;
    /* Who sieves data reads what it writes around. */
    if (writes && file->option == SIMPLE)
        mode = MPI_MODE_RDWR | MPI_MODE_CREATE;
    tried(file, "open", MPI_File_open(MPI_COMM_WORLD, file->name, mode, info, &file->handle));
    if (writes)
        tried(file, "empty", MPI_File_set_size(file->handle, 0));
    tried(file, "set the view of", MPI_File_set_view(file->handle, 0, file->element, file->view, "native", info));
    MPI_Info_free(&info);
}

static void open_file(const struct grid *grid, struct file *file, int writes)
{
    if (is_parallel(file)) {
        open_parallel(file, writes);
    } else if (file->option != NONE) {
        int mode = writes ? O_RDWR | O_CREAT : O_RDONLY, empties = file->option == EPIO || grid->rank == 0;
        /* Nobody writes what the first empties afterwards. */
        if (!empties)
            MPI_Barrier(MPI_COMM_WORLD);
        file->fd = open(file->name, mode | O_CLOEXEC | (writes && empties ? O_TRUNC : 0), 0666);
        tried_call(file, "open", file->fd >= 0);
        if (empties)
            MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void close_file(struct file *file)
{
    if (is_parallel(file))
        tried(file, "close", MPI_File_close(&file->handle));
    else if (file->option != NONE)
        tried_call(file, "close", close(file->fd) == 0);
}

/* What was written goes to stable storage and leaves this machine's caches, as far as the system does what it is advised. */
static void chill(const struct file *file)
{
    int fd = open(file->name, O_RDONLY | O_CLOEXEC);
    tried_call(file, "open", fd >= 0);
    tried_call(file, "sync", fsync(fd) == 0);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static void move_all(const struct file *file, void *data, size_t bytes, int writes)
{
    char *rest = data;
    while (bytes > 0) {
        errno = 0;
        ssize_t count = writes ? write(file->fd, rest, bytes) : read(file->fd, rest, bytes);
        if (count < 0 && errno == EINTR)
            continue;
        tried_call(file, writes ? "write" : "read", count > 0);
        rest += count, bytes -= count;
    }
}

static void move_rows(const struct grid *grid, struct file *file, int dump, int writes)
{
    const off_t side = grid->side;
    for (int c = 0; c < grid->cells; c++) {
        struct cell *cell = &grid->cell[c];
        for (int k = 0; k < cell->size[2]; k++)
            for (int j = 0; j < cell->size[1]; j++) {
                off_t row = (dump * side + cell->low[2] + k) * side + cell->low[1] + j;
                off_t place = (row * side + cell->low[0]) * (off_t)sizeof(point);
                tried_call(file, "seek in", lseek(file->fd, place, SEEK_SET) == place);
                move_all(file, cell->u[at(cell, 0, j, k)], cell->size[0] * sizeof(point), writes);
            }
    }
}

/* One record for each cell, with its length before and behind it. */
static void move_records(const struct grid *grid, struct file *file, int writes)
{
    for (int c = 0; c < grid->cells; c++) {
        struct cell *cell = &grid->cell[c];
        size_t row = cell->size[0] * sizeof(point), bytes = row * cell->size[1] * cell->size[2];
        if (bytes > INT32_MAX)
            abandon("write a cell as one record", "it is longer than 2 GiB");
        int32_t mark = (int32_t)bytes;
        char *next = file->packed + sizeof mark, *end = next + bytes;
        if (writes)
            memcpy(file->packed, &mark, sizeof mark), memcpy(end, &mark, sizeof mark);
        else
            move_all(file, file->packed, bytes + 2 * sizeof mark, 0);
        for (int k = 0; k < cell->size[2]; k++)
            for (int j = 0; j < cell->size[1]; j++, next += row) {
                void *values = cell->u[at(cell, 0, j, k)];
                memcpy(writes ? next : values, writes ? values : next, row);
            }
        if (writes)
            move_all(file, file->packed, bytes + 2 * sizeof mark, 1);
        else if (memcmp(file->packed, &mark, sizeof mark) != 0 || memcmp(end, &mark, sizeof mark) != 0)
            abandon("read back a record", "its length is wrong");
    }
}

static void move_view(const struct grid *grid, struct file *file, int dump, int writes)
{
    MPI_Offset place = (MPI_Offset)dump * file->points;
    MPI_File handle = file->handle;
    MPI_Status status;
    int code, bytes, count;
    if (file->option == FULL)
        code = writes ? MPI_File_write_at_all(handle, place, grid->u, 1, file->inner, &status)
                      : MPI_File_read_at_all(handle, place, grid->u, 1, file->inner, &status);
    else
        code = writes ? MPI_File_write_at(handle, place, grid->u, 1, file->inner, &status)
                      : MPI_File_read_at(handle, place, grid->u, 1, file->inner, &status);
    tried(file, writes ? "write" : "read", code);
    MPI_Type_size(file->inner, &bytes);
    MPI_Get_elements(&status, MPI_DOUBLE, &count);
    errno = 0;
    tried_call(file, writes ? "write all of" : "read all of", (size_t)count * sizeof(double) == (size_t)bytes);
}

/* Writes the solution behind what was written, or reads it. */
static void move_dump(const struct grid *grid, struct file *file, int dump, int writes)
{
    switch (file->option) {
    case FULL:
    case SIMPLE:
        move_view(grid, file, dump, writes);
        break;
    case FORTRAN:
        move_rows(grid, file, dump, writes);
        break;
    case EPIO:
        move_records(grid, file, writes);
        break;
    default:
        break;
    }
}
