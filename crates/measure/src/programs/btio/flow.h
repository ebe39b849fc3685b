/* The equations of BTIO: the compressible Navier-Stokes equations in three dimensions by central differences, with
 * artificial damping of fourth order and a forcing that makes a known polynomial the steady solution (Bailey and
 * others, The NAS Parallel Benchmarks, RNR-94-007). What stands for one axis stands for all: only the momentum along
 * it differs from the other two. */
#include <math.h>

/* Coefficients of the gas: ratio of specific heats, that less 1, viscosity times conductivity. */
static const double GAMMA = 1.4, GAMMA_1 = 0.4, VISCOSITY = 0.1, HEAT = 1.4 * 1.4;
/* Damping of second order along x, y and z; the implicit side uses it too. */
static const double SECOND[3] = { 0.75, 0.75, 1.0 };
/* Damping of fourth order: a quarter of the greatest above. */
static const double FOURTH = 0.25;

/* Steps along an axis: 1 / h squared and 1 / 2h. */
struct steps {
    double second, first, time;
};

static struct steps steps_of(int side, double time)
{
    double inverse = side - 1;
    return (struct steps){ inverse * inverse, inverse / 2, time };
}

/* Coefficients of the polynomial: 1; x y z, then their squares, cubes and fourth powers. */
static const double POLYNOMIAL[VALUES][13] = {
    { 2, 0, 0, 4, 5, 3, .5, .02, .01, .03, .5, .4, .3 },
    { 1, 0, 0, 0, 1, 2, 3, .01, .03, .02, .4, .3, .5 },
    { 2, 2, 0, 0, 0, 2, 3, .04, .03, .05, .3, .5, .4 },
    { 2, 2, 0, 0, 0, 2, 3, .03, .05, .04, .2, .1, .3 },
    { 5, 4, 3, 2, .1, .4, .3, .05, .04, .03, .1, .3, .2 },
};

static void exact(const double place[3], double *value)
{
    for (int m = 0; m < VALUES; m++) {
        const double *c = POLYNOMIAL[m];
        value[m] = c[0];
        for (int axis = 0; axis < 3; axis++) {
            double x = place[axis];
            value[m] += x * (c[axis + 1] + x * (c[axis + 4] + x * (c[axis + 7] + x * c[axis + 10])));
        }
    }
}

static void exact_at(const struct grid *grid, const struct cell *cell, int i, int j, int k, double *value)
{
    const double h = 1.0 / (grid->side - 1);
    exact((double[3]){ (cell->low[0] + i) * h, (cell->low[1] + j) * h, (cell->low[2] + k) * h }, value);
}

/* Between the faces: the interpolations of the three pairs of faces, joined. */
static void between(const double place[3], double *value)
{
    double faces[3][VALUES];
    for (int axis = 0; axis < 3; axis++) {
        double near[3], far[3], a[VALUES], b[VALUES], x = place[axis];
        memcpy(near, place, sizeof near), memcpy(far, place, sizeof far);
        near[axis] = 0, far[axis] = 1;
        exact(near, a), exact(far, b);
        for (int m = 0; m < VALUES; m++)
            faces[axis][m] = x * b[m] + (1 - x) * a[m];
    }
    for (int m = 0; m < VALUES; m++) {
        double x = faces[0][m], y = faces[1][m], z = faces[2][m];
        value[m] = x + y + z - x * y - x * z - y * z + x * y * z;
    }
}

/* Every value a little off, and none zero outside: some terms divide by the density there, though nothing uses it. */
static void begin_flow(struct grid *grid)
{
    const double h = 1.0 / (grid->side - 1);
    for (int c = 0; c < grid->cells; c++) {
        struct cell *cell = &grid->cell[c];
        for (long x = 0; x < cell->points; x++)
            for (int m = 0; m < VALUES; m++)
                cell->u[x][m] = 1;
        FOR_ALL(cell) {
            int all[3] = { cell->low[0] + i, cell->low[1] + j, cell->low[2] + k }, is_outer = 0;
            for (int axis = 0; axis < 3; axis++)
                is_outer |= all[axis] == 0 || all[axis] == grid->side - 1;
            double *value = cell->u[at(cell, i, j, k)];
            double place[3] = { all[0] * h, all[1] * h, all[2] * h };
            if (is_outer)
                exact(place, value);
            else
                between(place, value);
        }
    }
}

static void find_flow(struct cell *cell)
{
    for (long x = 0; x < cell->points; x++) {
        const double *u = cell->u[x];
        struct flow *flow = &cell->flow[x];
        flow->inverse = 1 / u[0];
        for (int axis = 0; axis < 3; axis++)
            flow->velocity[axis] = u[axis + 1] * flow->inverse;
        flow->kinetic = 0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) * flow->inverse;
        flow->pressure = GAMMA_1 * (u[4] - flow->kinetic);
    }
}

static double second(double before, double here, double after)
{
    return after - 2 * here + before;
}

/* Weights of the fourth difference, whose ends stay inside. */
static const double *fourth_weights(int place, int side)
{
    static const double all[5][5] = {
        { 1, -4, 6, -4, 1 }, { 0, 0, 5, -4, 1 }, { 0, -4, 6, -4, 1 }, { 1, -4, 6, -4, 0 }, { 1, -4, 5, 0, 0 },
    };
    int row = place == 1 ? 1 : place == 2 ? 2 : place == side - 3 ? 3 : place == side - 2 ? 4 : 0;
    return all[row];
}

/* Adds the terms of an axis at one point; `s` leads to the next along it. */
static inline void add_point(const struct steps *steps, int axis, const double (*u)[VALUES], const struct flow *flow, long s,
                             const double *weights, double *out)
{
    const double viscous = VISCOSITY * steps->second, damped = SECOND[axis] * steps->second;
    const double *before = u[-s], *here = u[0], *after = u[s];
    const struct flow *f0 = &flow[-s], *f1 = flow, *f2 = &flow[s];
    const double v0 = f0->velocity[axis], v1 = f1->velocity[axis], v2 = f2->velocity[axis];
    out[0] += damped * second(before[0], here[0], after[0]) - steps->first * (after[axis + 1] - before[axis + 1]);
    for (int m = 0; m < 3; m++) {
        double flux = after[m + 1] * v2 - before[m + 1] * v0, thick = viscous;
        if (m == axis) {
            flux += f2->pressure - f0->pressure;
            thick *= 4.0 / 3;
        }
        out[m + 1] += damped * second(before[m + 1], here[m + 1], after[m + 1]) - steps->first * flux +
                      thick * second(f0->velocity[m], f1->velocity[m], f2->velocity[m]);
    }
    out[4] += damped * second(before[4], here[4], after[4]) +
              viscous * (1 - HEAT) * second(f0->kinetic * f0->inverse, f1->kinetic * f1->inverse, f2->kinetic * f2->inverse) +
              viscous / 6 * second(v0 * v0, v1 * v1, v2 * v2) +
              viscous * HEAT * second(before[4] * f0->inverse, here[4] * f1->inverse, after[4] * f2->inverse) -
              steps->first * ((after[4] + f2->pressure) * v2 - (before[4] + f0->pressure) * v0);
    for (int m = 0; m < VALUES; m++)
        out[m] -= FOURTH * (weights[0] * u[-2 * s][m] + weights[1] * before[m] + weights[2] * here[m] + weights[3] * after[m] +
                            weights[4] * u[2 * s][m]);
}

/* Adds the differences of the flow along all axes to the right-hand side. */
static void add_differences(const struct grid *grid, struct cell *cell, const struct steps *steps)
{
    find_flow(cell);
    for (int axis = 0; axis < 3; axis++)
        FOR_INNER(grid, cell) {
            long x = at(cell, i, j, k);
            const double *weights = fourth_weights(cell->low[axis] + (int[3]){ i, j, k }[axis], grid->side);
            add_point(steps, axis, (const double(*)[VALUES])(cell->u + x), cell->flow + x, cell->stride[axis], weights, cell->rhs[x]);
        }
}

/* What keeps the polynomial: the negative of its differences. Uses the arrays of the flow. */
static void find_forcing(struct grid *grid, const struct steps *steps)
{
    for (int c = 0; c < grid->cells; c++) {
        struct cell *cell = &grid->cell[c];
        for (int k = -GHOSTS; k < cell->size[2] + GHOSTS; k++)
            for (int j = -GHOSTS; j < cell->size[1] + GHOSTS; j++)
                for (int i = -GHOSTS; i < cell->size[0] + GHOSTS; i++)
                    exact_at(grid, cell, i, j, k, cell->u[at(cell, i, j, k)]);
        memset(cell->rhs, 0, cell->points * sizeof(point));
        add_differences(grid, cell, steps);
        for (long x = 0; x < cell->points; x++)
            for (int m = 0; m < VALUES; m++)
                cell->forcing[x][m] = -cell->rhs[x][m];
    }
}

/* The right-hand side of a step in time. */
static void find_rhs(struct grid *grid, const struct steps *steps)
{
    exchange(grid);
    for (int c = 0; c < grid->cells; c++) {
        struct cell *cell = &grid->cell[c];
        memcpy(cell->rhs, cell->forcing, cell->points * sizeof(point));
        add_differences(grid, cell, steps);
        for (long x = 0; x < cell->points; x++)
            for (int m = 0; m < VALUES; m++)
                cell->rhs[x][m] *= steps->time;
    }
}

static void advance(struct grid *grid)
{
    for (int c = 0; c < grid->cells; c++) {
        struct cell *cell = &grid->cell[c];
        FOR_INNER(grid, cell) {
            long x = at(cell, i, j, k);
            for (int m = 0; m < VALUES; m++)
                cell->u[x][m] += cell->rhs[x][m];
        }
    }
}
