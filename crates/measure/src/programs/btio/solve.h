/* The implicit half of a step of BTIO: along each axis, for every line of points, a system of equations with three
 * diagonals of blocks of 5 x 5. Lines go through their cells layer by layer, and back. Several lines are worked on side
 * by side, one in each lane of a vector. */

enum { LANES = 8 };
typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef lanes block[VALUES][VALUES];

/* Vectors as wide as the processor has. */
#if defined(__x86_64__) && __GNUC__ >= 12
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif
#define INSIDE static inline __attribute__((always_inline))

/* What a point gives to the equation of the point after it, of itself, and of the point before it. */
struct blocks {
    block after, self, before;
};

/* A point whose equation is x = right - upper * x of the next. */
struct solved {
    block upper;
    lanes right[VALUES];
};

/* Lines of a cell along an axis, in the order in which they are dealt to lanes. */
struct lines {
    int axis, first[2], across, count, bundles;
};

static struct lines lines_of(const struct grid *grid, const struct cell *cell, int axis)
{
    int a = axis == 0 ? 1 : 0, b = axis == 2 ? 1 : 2;
    struct lines lines = { .axis = axis, .first = { first_inner(cell, a), first_inner(cell, b) } };
    lines.across = end_inner(grid, cell, a) - lines.first[0];
    lines.count = lines.across * (end_inner(grid, cell, b) - lines.first[1]);
    lines.bundles = (lines.count + LANES - 1) / LANES;
    return lines;
}

/* The first points of a bundle's lines. Lanes that are left over follow the last line. */
static void find_lines(const struct cell *cell, const struct lines *lines, int bundle, long *first)
{
    int a = lines->axis == 0 ? 1 : 0, b = lines->axis == 2 ? 1 : 2;
    for (int lane = 0; lane < LANES; lane++) {
        int line = bundle * LANES + lane;
        if (line >= lines->count)
            line = lines->count - 1;
        int place[3] = { 0, 0, 0 };
        place[a] = lines->first[0] + line % lines->across, place[b] = lines->first[1] + line / lines->across;
        first[lane] = at(cell, place[0], place[1], place[2]);
    }
}

INSIDE void gather(const point *from, const long *first, long x, lanes *out)
{
    for (int m = 0; m < VALUES; m++)
        for (int lane = 0; lane < LANES; lane++)
            out[m][lane] = from[first[lane] + x][m];
}

/* The derivatives of the fluxes through a point: convection `f`, and viscosity with damping `n`, each times its steps. */
INSIDE void derive(const struct steps *steps, int axis, const lanes *u, block f, block n)
{
    const double thin = steps->time * steps->second * VISCOSITY, first = steps->time * steps->first;
    const double damped = steps->time * steps->second * SECOND[axis];
    const int own = axis + 1;
    const lanes inverse = 1 / u[0], energy = u[4] * inverse, zero = inverse - inverse;
    const lanes v[3] = { u[1] * inverse, u[2] * inverse, u[3] * inverse };
    const lanes square = v[0] * v[0] + v[1] * v[1] + v[2] * v[2], along = v[axis];
    for (int row = 0; row < VALUES; row++)
        for (int column = 0; column < VALUES; column++)
            f[row][column] = n[row][column] = zero;
    f[0][own] = zero + first;
    lanes friction = HEAT * energy;
    for (int m = 0; m < 3; m++) {
        const double thick = thin * (m == axis ? 4.0 / 3 : 1);
        f[m + 1][0] = -first * v[m] * along;
        f[m + 1][m + 1] += first * along;
        f[m + 1][own] += first * v[m];
        f[own][m + 1] -= first * GAMMA_1 * v[m];
        f[4][m + 1] = -first * GAMMA_1 * v[m] * along;
        n[m + 1][0] = -thick * inverse * v[m];
        n[m + 1][m + 1] = thick * inverse + damped;
        n[4][m + 1] = (thick - thin * HEAT) * inverse * v[m];
        friction += ((m == axis ? 4.0 / 3 : 1) - HEAT) * v[m] * v[m];
    }
    f[own][0] += first * 0.5 * GAMMA_1 * square;
    f[own][4] = zero + first * GAMMA_1;
    f[4][0] = first * (GAMMA_1 * square - GAMMA * energy) * along;
    f[4][own] += first * (GAMMA * energy - 0.5 * GAMMA_1 * square);
    f[4][4] = first * GAMMA * along;
    n[0][0] = zero + damped;
    n[4][0] = -thin * inverse * friction;
    n[4][4] = thin * HEAT * inverse + damped;
}

INSIDE void find_blocks(const struct steps *steps, int axis, const lanes *u, struct blocks *out)
{
    block f, n;
    derive(steps, axis, u, f, n);
    for (int row = 0; row < VALUES; row++)
        for (int column = 0; column < VALUES; column++) {
            out->after[row][column] = -f[row][column] - n[row][column];
            out->self[row][column] = 2 * n[row][column] + (row == column ? 1.0 : 0.0);
            out->before[row][column] = f[row][column] - n[row][column];
        }
}

/* Takes what is known of the point before out of an equation: lower * x before + self * x + upper * x after = right. */
INSIDE void subtract(const block lower, const struct solved *before, block self, lanes *right)
{
    for (int row = 0; row < VALUES; row++)
        for (int m = 0; m < VALUES; m++) {
            for (int column = 0; column < VALUES; column++)
                self[row][column] -= lower[row][m] * before->upper[m][column];
            right[row] -= lower[row][m] * before->right[m];
        }
}

/* Solves self * x + upper * x after = right for x. The blocks are dominated by their diagonals: no pivots are sought. */
INSIDE void divide(block self, struct solved *out)
{
    for (int pivot = 0; pivot < VALUES; pivot++) {
        lanes factor = 1 / self[pivot][pivot];
        for (int column = pivot + 1; column < VALUES; column++)
            self[pivot][column] *= factor;
        for (int column = 0; column < VALUES; column++)
            out->upper[pivot][column] *= factor;
        out->right[pivot] *= factor;
        for (int row = 0; row < VALUES; row++) {
            if (row == pivot)
                continue;
            factor = self[row][pivot];
            for (int column = pivot + 1; column < VALUES; column++)
                self[row][column] -= factor * self[pivot][column];
            for (int column = 0; column < VALUES; column++)
                out->upper[row][column] -= factor * out->upper[pivot][column];
            out->right[row] -= factor * out->right[pivot];
        }
    }
}

/* Where a bundle of lines stands in a cell. */
struct bundle {
    const struct cell *cell;
    const struct steps *steps;
    int axis, length, is_begin, is_end;
    long first[LANES];
};

/* Eliminates forwards. `before` is the last point of the cell before, unless the line begins here. */
WIDE static void eliminate(const struct bundle *of, const struct solved *before, struct solved *out)
{
    const struct cell *cell = of->cell;
    const long stride = cell->stride[of->axis];
    struct blocks around[3];
    lanes u[VALUES] = { { 0 } };
    for (int i = -1; i < 1; i++) {
        gather(cell->u, of->first, i * stride, u);
        find_blocks(of->steps, of->axis, u, &around[(i + 3) % 3]);
    }
    for (int i = 0; i < of->length; i++) {
        gather(cell->u, of->first, (i + 1) * stride, u);
        find_blocks(of->steps, of->axis, u, &around[(i + 1) % 3]);
        if ((of->is_begin && i == 0) || (of->is_end && i == of->length - 1)) {
            memset(&out[i], 0, sizeof out[i]);
        } else {
            struct blocks *self = &around[i % 3];
            memcpy(out[i].upper, around[(i + 1) % 3].before, sizeof out[i].upper);
            gather(cell->rhs, of->first, i * stride, out[i].right);
            subtract(around[(i + 2) % 3].after, before, self->self, out[i].right);
            divide(self->self, &out[i]);
        }
        before = &out[i];
    }
}

/* Substitutes backwards. `x` is the first point of the cell after, and becomes that of this one; at the end of the line
 * it counts for nothing. */
WIDE static void substitute(const struct bundle *of, const struct solved *solved, lanes *x)
{
    const struct cell *cell = of->cell;
    for (int i = of->length - 1; i >= 0; i--) {
        lanes next[VALUES];
        memcpy(next, x, sizeof next);
        for (int row = 0; row < VALUES; row++) {
            x[row] = solved[i].right[row];
            for (int m = 0; m < VALUES; m++)
                x[row] -= solved[i].upper[row][m] * next[m];
            for (int lane = 0; lane < LANES; lane++)
                cell->rhs[of->first[lane] + i * cell->stride[of->axis]][row] = x[row][lane];
        }
    }
}

/* What sweeps need beside the grid: for each cell what elimination found, and the messages. */
struct sweeps {
    struct solved **kept, *last;
    struct solved *in, *out;
    lanes *x_in, *x_out;
    MPI_Request forwards, backwards;
};

enum { TAG_FORWARDS = 100, TAG_BACKWARDS };

static struct sweeps sweeps_of(const struct grid *grid)
{
    size_t side = grid->side / grid->cells + 1, bundles = (side * side + LANES - 1) / LANES;
    size_t bytes = bundles * sizeof(struct solved), x_bytes = bundles * VALUES * sizeof(lanes);
    struct sweeps sweeps = { .kept = memory(grid->cells * sizeof(struct solved *)) };
    /* A line that ends here goes back at once. */
    sweeps.last = memory(side * sizeof(struct solved));
    for (int c = 0; c < grid->cells && grid->cells > 1; c++)
        sweeps.kept[c] = memory(bytes * side);
    sweeps.in = memory(bytes), sweeps.out = memory(bytes);
    sweeps.x_in = memory(x_bytes), sweeps.x_out = memory(x_bytes);
    sweeps.forwards = sweeps.backwards = MPI_REQUEST_NULL;
    return sweeps;
}

static struct bundle bundle_of(const struct grid *grid, const struct cell *cell, const struct steps *steps,
                               const struct lines *lines, int bundle)
{
    struct bundle of = { .cell = cell, .steps = steps, .axis = lines->axis, .length = cell->size[lines->axis] };
    of.is_begin = cell->place[lines->axis] == 0, of.is_end = cell->place[lines->axis] == grid->cells - 1;
    find_lines(cell, lines, bundle, of.first);
    return of;
}

static void send_on(const void *message, int count, int to, int tag, MPI_Request *request)
{
    MPI_Isend(message, count, MPI_DOUBLE, to, tag, MPI_COMM_WORLD, request);
}

/* A layer on the way forwards; at the last one also back. */
static void forwards(struct grid *grid, const struct steps *steps, int layer, int axis, struct sweeps *sweeps)
{
    int c = grid->layer[axis][layer], is_last = layer == grid->cells - 1;
    struct cell *cell = &grid->cell[c];
    struct lines lines = lines_of(grid, cell, axis);
    int count = lines.bundles * (int)(sizeof *sweeps->in / sizeof(double)), length = cell->size[axis];
    if (layer > 0)
        MPI_Recv(sweeps->in, count, MPI_DOUBLE, grid->previous[axis], TAG_FORWARDS, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(is_last ? &sweeps->backwards : &sweeps->forwards, MPI_STATUS_IGNORE);
    for (int b = 0; b < lines.bundles; b++) {
        struct bundle of = bundle_of(grid, cell, steps, &lines, b);
        struct solved *solved = is_last ? sweeps->last : sweeps->kept[c] + (size_t)b * length;
        eliminate(&of, &sweeps->in[b], solved);
        lanes *x = sweeps->x_out + b * VALUES;
        if (is_last) {
            memset(x, 0, VALUES * sizeof *x);
            substitute(&of, solved, x);
        } else {
            sweeps->out[b] = solved[length - 1];
        }
    }
    if (!is_last)
        send_on(sweeps->out, count, grid->next[axis], TAG_FORWARDS, &sweeps->forwards);
    else if (layer > 0)
        send_on(sweeps->x_out, lines.bundles * VALUES * LANES, grid->previous[axis], TAG_BACKWARDS, &sweeps->backwards);
}

static void backwards(struct grid *grid, const struct steps *steps, int layer, int axis, struct sweeps *sweeps)
{
    int c = grid->layer[axis][layer];
    struct cell *cell = &grid->cell[c];
    struct lines lines = lines_of(grid, cell, axis);
    int count = lines.bundles * VALUES * LANES, length = cell->size[axis];
    MPI_Recv(sweeps->x_in, count, MPI_DOUBLE, grid->next[axis], TAG_BACKWARDS, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&sweeps->backwards, MPI_STATUS_IGNORE);
    memcpy(sweeps->x_out, sweeps->x_in, count * sizeof(double));
    for (int b = 0; b < lines.bundles; b++) {
        struct bundle of = bundle_of(grid, cell, steps, &lines, b);
        substitute(&of, sweeps->kept[c] + (size_t)b * length, sweeps->x_out + b * VALUES);
    }
    if (layer > 0)
        send_on(sweeps->x_out, count, grid->previous[axis], TAG_BACKWARDS, &sweeps->backwards);
}

/* One axis after the other, each with the result of the one before as its right-hand side. */
static void sweep(struct grid *grid, const struct steps *steps, struct sweeps *sweeps)
{
    for (int axis = 0; axis < 3; axis++) {
        for (int layer = 0; layer < grid->cells; layer++)
            forwards(grid, steps, layer, axis, sweeps);
        for (int layer = grid->cells - 2; layer >= 0; layer--)
            backwards(grid, steps, layer, axis, sweeps);
    }
    MPI_Wait(&sweeps->forwards, MPI_STATUS_IGNORE);
    MPI_Wait(&sweeps->backwards, MPI_STATUS_IGNORE);
}
