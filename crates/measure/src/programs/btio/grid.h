/* The grid of BTIO, dealt out diagonally: of P = p * p processes each has p cells, one in every layer of cells along
 * every axis, so that a sweep along an axis keeps all of them busy. The neighbours of a process are the same for all
 * its cells. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values of a point: density, three momenta, energy. */
enum { VALUES = 5 };
/* Points beside a cell that belong to its neighbours, or lie outside. */
enum { GHOSTS = 2 };
/* Least points of a cell along an axis: fewer would need ghosts from beyond the neighbour. */
enum { SIDE_MIN = 3 };

typedef double point[VALUES];

/* What follows from the values of a point. */
struct flow {
    double inverse, velocity[3];
    /* Per volume. */
    double kinetic, pressure;
};

/* Its arrays have the same shape, with ghosts; a point is found by index(). */
struct cell {
    int place[3], low[3], size[3];
    /* From a point to the next along each axis. */
    long stride[3];
    long points;
    point *u, *rhs, *forcing;
    struct flow *flow;
};

struct grid {
    int rank, ranks;
    /* Cells along an axis, and of this process. */
    int cells;
    /* Points along an axis. */
    int side;
    struct cell *cell;
    /* The values of all cells. */
    point *u;
    /* The cell of this process in each layer. */
    int *layer[3];
    int next[3], previous[3];
};

static void abandon(const char *what, const char *why)
{
    fprintf(stderr, "btio: cannot %s: %s\n", what, why);
    MPI_Abort(MPI_COMM_WORLD, 3);
    exit(3);
}

static void *memory(size_t bytes)
{
    void *found = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (!found)
        abandon("run", "there is no memory");
    return memset(found, 0, bytes);
}

static inline long at(const struct cell *cell, int i, int j, int k)
{
    return (i + GHOSTS) + (j + GHOSTS) * cell->stride[1] + (k + GHOSTS) * cell->stride[2];
}

/* The points of a cell along an axis that lie within the boundary. */
static inline int first_inner(const struct cell *cell, int axis)
{
    return cell->low[axis] == 0;
}

static inline int end_inner(const struct grid *grid, const struct cell *cell, int axis)
{
    return cell->size[axis] - (cell->low[axis] + cell->size[axis] == grid->side);
}

/* Every point of a cell, or those within the boundary. */
#define FOR_ALL(cell) \
    for (int k = 0; k < (cell)->size[2]; k++) \
        for (int j = 0; j < (cell)->size[1]; j++) \
            for (int i = 0; i < (cell)->size[0]; i++)
#define FOR_INNER(grid, cell) \
    for (int k = first_inner(cell, 2); k < end_inner(grid, cell, 2); k++) \
        for (int j = first_inner(cell, 1); j < end_inner(grid, cell, 1); j++) \
            for (int i = first_inner(cell, 0); i < end_inner(grid, cell, 0); i++)

/* The first of the cells along an axis are a point longer where the side does not divide. */
static void place_cell(const struct grid *grid, struct cell *cell)
{
    int size = grid->side / grid->cells, longer = grid->side % grid->cells;
    cell->points = 1;
    for (int axis = 0; axis < 3; axis++) {
        int place = cell->place[axis];
        cell->size[axis] = size + (place < longer);
        cell->low[axis] = place * size + (place < longer ? place : longer);
        cell->stride[axis] = cell->points;
        cell->points *= cell->size[axis] + 2 * GHOSTS;
    }
}

static void place_process(struct grid *grid)
{
    int p = grid->cells, i = grid->rank % p, j = grid->rank / p;
    int up_i = (i + 1) % p, down_i = (i + p - 1) % p, up_j = (j + 1) % p, down_j = (j + p - 1) % p;
    grid->next[0] = up_i + p * j, grid->previous[0] = down_i + p * j;
    grid->next[1] = i + p * up_j, grid->previous[1] = i + p * down_j;
    grid->next[2] = down_i + p * up_j, grid->previous[2] = up_i + p * down_j;
    for (int c = 0; c < p; c++) {
        struct cell *cell = &grid->cell[c];
        cell->place[0] = (i + c) % p, cell->place[1] = (j + p - c) % p, cell->place[2] = c;
        for (int axis = 0; axis < 3; axis++)
            grid->layer[axis][cell->place[axis]] = c;
        place_cell(grid, cell);
    }
}

static struct grid grid_of(int side)
{
    struct grid grid = { .side = side };
    MPI_Comm_rank(MPI_COMM_WORLD, &grid.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &grid.ranks);
    while ((grid.cells + 1) * (grid.cells + 1) <= grid.ranks)
        grid.cells++;
    if (grid.cells * grid.cells != grid.ranks)
        abandon("deal out the grid", "the number of processes must be a square: 1, 4, 9, 16 ...");
    if (side / grid.cells < SIDE_MIN)
        abandon("deal out the grid", "there are too many processes for this class");
    grid.cell = memory(grid.cells * sizeof *grid.cell);
    for (int axis = 0; axis < 3; axis++)
        grid.layer[axis] = memory(grid.cells * sizeof(int));
    place_process(&grid);
    long points = 0;
    for (int c = 0; c < grid.cells; c++)
        points += grid.cell[c].points;
    point *all[3];
    for (int array = 0; array < 3; array++)
        all[array] = memory(points * sizeof(point));
    struct flow *flow = memory(points * sizeof *flow);
    grid.u = all[0];
    points = 0;
    for (int c = 0; c < grid.cells; c++) {
        struct cell *cell = &grid.cell[c];
        cell->u = all[0] + points, cell->rhs = all[1] + points, cell->forcing = all[2] + points;
        cell->flow = flow + points;
        points += cell->points;
    }
    return grid;
}

/* ---- ghosts ---- */

/* The two layers of points of a cell at an end of an axis, its own or the ghosts, to or from a message. */
static double *layers(struct cell *cell, int axis, int from, double *message, int is_packed)
{
    int low[3] = { 0, 0, 0 }, end[3] = { cell->size[0], cell->size[1], cell->size[2] };
    low[axis] = from, end[axis] = from + GHOSTS;
    for (int k = low[2]; k < end[2]; k++)
        for (int j = low[1]; j < end[1]; j++) {
            point *row = cell->u + at(cell, low[0], j, k);
            size_t bytes = (end[0] - low[0]) * sizeof(point);
            memcpy(is_packed ? message : (void *)row, is_packed ? (void *)row : message, bytes);
            message += (end[0] - low[0]) * VALUES;
        }
    return message;
}

/* Bytes do not tell a cell: its neighbours come in the same order on both sides. */
static double *pack(const struct grid *grid, int axis, int is_up, double *message, int is_packed)
{
    for (int c = 0; c < grid->cells; c++) {
        struct cell *cell = &grid->cell[c];
        int size = cell->size[axis];
        /* What goes up leaves the upper end of one cell, and becomes the ghosts below another. */
        int is_upper = is_packed == is_up;
        if (cell->place[axis] == (is_upper ? grid->cells - 1 : 0))
            continue;
        int from = is_packed ? (is_upper ? size - GHOSTS : 0) : (is_upper ? size : -GHOSTS);
        message = layers(cell, axis, from, message, is_packed);
    }
    return message;
}

/* Takes the neighbours' points beside every cell. */
static void exchange(const struct grid *grid)
{
    static double *buffer[12];
    static size_t room;
    if (grid->cells == 1)
        return;
    size_t side = grid->side / grid->cells + 1;
    room = GHOSTS * side * side * VALUES * grid->cells;
    MPI_Request requests[12];
    for (int way = 0; way < 6; way++) {
        int axis = way / 2, is_up = way % 2;
        for (int half = 0; half < 2; half++)
            if (!buffer[2 * way + half])
                buffer[2 * way + half] = memory(room * sizeof(double));
        int from = is_up ? grid->previous[axis] : grid->next[axis];
        int to = is_up ? grid->next[axis] : grid->previous[axis];
        MPI_Irecv(buffer[2 * way], (int)room, MPI_DOUBLE, from, way, MPI_COMM_WORLD, &requests[2 * way]);
        double *begin = buffer[2 * way + 1], *end = pack(grid, axis, is_up, begin, 1);
        MPI_Isend(begin, (int)(end - begin), MPI_DOUBLE, to, way, MPI_COMM_WORLD, &requests[2 * way + 1]);
    }
    for (int request = 0; request < 12; request++)
        MPI_Wait(&requests[request], MPI_STATUS_IGNORE);
    for (int way = 0; way < 6; way++)
        pack(grid, way / 2, way % 2, buffer[2 * way], 0);
}
