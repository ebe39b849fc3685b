/* What BTIO's classes are, and what must come out of them: the norms that NASA publishes with the NAS Parallel
 * Benchmarks 3.4. The residual is the same with and without output; the error of the solution is that of the last step
 * without, and the mean of all written ones with it. */

enum { CLASSES = 5 };
static const double EPSILON = 1e-8;

struct class {
    char letter;
    int side, iterations;
    double time, residual[VALUES], error[VALUES], errors[VALUES];
};

static const struct class ALL_CLASSES[CLASSES] = {
    { 'S', 12, 60, 0.010,
      { 1.7034283709541311e-01, 1.2975252070034097e-02, 3.2527926989486055e-02, 2.6436421275166801e-02, 1.9211784131744430e-01 },
      { 4.9976913345811579e-04, 4.5195666782961927e-05, 7.3973765172921357e-05, 7.3821238632439731e-05, 8.9269630987491446e-04 },
      { 0.1149036328945e+02, 0.9156788904727e+00, 0.2857899428614e+01, 0.2598273346734e+01, 0.2652795397547e+02 } },
    { 'W', 24, 200, 0.0008,
      { 0.1125590409344e+03, 0.1180007595731e+02, 0.2710329767846e+02, 0.2469174937669e+02, 0.2638427874317e+03 },
      { 0.4419655736008e+01, 0.4638531260002e+00, 0.1011551749967e+01, 0.9235878729944e+00, 0.1018045837718e+02 },
      { 0.6729594398612e+02, 0.5264523081690e+01, 0.1677107142637e+02, 0.1508721463436e+02, 0.1477018363393e+03 } },
    { 'A', 64, 200, 0.0008,
      { 1.0806346714637264e+02, 1.1319730901220813e+01, 2.5974354511582465e+01, 2.3665622544678910e+01, 2.5278963211748344e+02 },
      { 4.2348416040525025e+00, 4.4390282496995698e-01, 9.6692480136345650e-01, 8.8302063039765474e-01, 9.7379901770829278e+00 },
      { 0.6482218724961e+02, 0.5066461714527e+01, 0.1613931961359e+02, 0.1452010201481e+02, 0.1420099377681e+03 } },
    { 'B', 102, 200, 0.0003,
      { 1.4233597229287254e+03, 9.9330522590150238e+01, 3.5646025644535285e+02, 3.2485447959084092e+02, 3.2707541254659363e+03 },
      { 5.2969847140936856e+01, 4.4632896115670668e+00, 1.3122573342210174e+01, 1.2006925323559144e+01, 1.2459576151035986e+02 },
      { 0.1477545106464e+03, 0.1108895555053e+02, 0.3698065590331e+02, 0.3310505581440e+02, 0.3157928282563e+03 } },
    { 'C', 162, 200, 0.0001,
      { 0.62398116551764615e+04, 0.50793239190423964e+03, 0.15423530093013596e+04, 0.13302387929291190e+04, 0.11604087428436455e+05 },
      { 0.16462008369091265e+03, 0.11497107903824313e+02, 0.41207446207461508e+02, 0.37087651059694167e+02, 0.36211053051841265e+03 },
      { 0.2597156483475e+03, 0.1985384289495e+02, 0.6517950485788e+02, 0.5757235541520e+02, 0.5215668188726e+03 } },
};

static const struct class *class_of(const char *letter)
{
    for (int c = 0; c < CLASSES; c++)
        if (letter[0] == ALL_CLASSES[c].letter && !letter[1])
            return &ALL_CLASSES[c];
    return NULL;
}

/* Root of the mean square over all processes; by custom the mean is over the points within the boundary. */
static void norm_of(const struct grid *grid, const double *mine, double *norm)
{
    double inner = grid->side - 2;
    MPI_Allreduce(mine, norm, VALUES, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int m = 0; m < VALUES; m++)
        norm[m] = sqrt(norm[m] / (inner * inner * inner));
}

static void error_norm(const struct grid *grid, double *norm)
{
    double mine[VALUES] = { 0 }, wanted[VALUES];
    for (int c = 0; c < grid->cells; c++) {
        const struct cell *cell = &grid->cell[c];
        FOR_ALL(cell) {
            const double *u = cell->u[at(cell, i, j, k)];
            exact_at(grid, cell, i, j, k, wanted);
            for (int m = 0; m < VALUES; m++)
                mine[m] += (u[m] - wanted[m]) * (u[m] - wanted[m]);
        }
    }
    norm_of(grid, mine, norm);
}

static void residual_norm(struct grid *grid, const struct steps *steps, double *norm)
{
    double mine[VALUES] = { 0 };
    find_rhs(grid, steps);
    for (int c = 0; c < grid->cells; c++) {
        const struct cell *cell = &grid->cell[c];
        FOR_INNER(grid, cell) {
            const double *rhs = cell->rhs[at(cell, i, j, k)];
            for (int m = 0; m < VALUES; m++)
                mine[m] += rhs[m] * rhs[m];
        }
    }
    norm_of(grid, mine, norm);
    for (int m = 0; m < VALUES; m++)
        norm[m] /= steps->time;
}

static void clear(struct grid *grid)
{
    for (int c = 0; c < grid->cells; c++) {
        struct cell *cell = &grid->cell[c];
        FOR_ALL(cell)
            memset(cell->u[at(cell, i, j, k)], 0, sizeof(point));
    }
}

/* A sum over values and their places: the same for the same solutions, whoever holds which part of them. */
static uint64_t sum_of(const struct grid *grid, int dump)
{
    uint64_t sum = 0, side = grid->side;
    for (int c = 0; c < grid->cells; c++) {
        const struct cell *cell = &grid->cell[c];
        FOR_ALL(cell) {
            uint64_t place = ((dump * side + cell->low[2] + k) * side + cell->low[1] + j) * side + cell->low[0] + i;
            for (int m = 0; m < VALUES; m++) {
                uint64_t bits, mixed;
                memcpy(&bits, &cell->u[at(cell, i, j, k)][m], sizeof bits);
                mixed = (bits ^ (place * VALUES + m) * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
                sum += (mixed ^ mixed >> 31) * 0x94d049bb133111ebu;
            }
        }
    }
    return sum;
}

/* What was read back: the mean error of all solutions, their sum, and the seconds it took. */
struct read_back {
    double error[VALUES], seconds;
    uint64_t sum;
};

/* Reads everything back. The last solution stays. */
static struct read_back read_back(struct grid *grid, struct file *file, int dumps)
{
    struct read_back all = { .seconds = -MPI_Wtime() };
    open_file(grid, file, 0);
    all.seconds += MPI_Wtime();
    uint64_t mine = 0;
    for (int dump = 0; dump < dumps; dump++) {
        double one[VALUES];
        clear(grid);
        MPI_Barrier(MPI_COMM_WORLD);
        all.seconds -= MPI_Wtime();
        move_dump(grid, file, dump, 0);
        all.seconds += MPI_Wtime();
        error_norm(grid, one);
        mine += sum_of(grid, dump);
        for (int m = 0; m < VALUES; m++)
            all.error[m] += one[m] / dumps;
    }
    close_file(file);
    MPI_Allreduce(&mine, &all.sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* A number as Fortran writes it. */
static const char *number(char *text, double value, int digits)
{
    char plain[64];
    snprintf(plain, sizeof plain, "%.*E", digits - 1, fabs(value));
    if (!strchr(plain, 'E'))
        return strcpy(text, "NaN");
    int power = atoi(strchr(plain, 'E') + 1) + (value != 0);
    sprintf(text, "%s0.%c%.*sE%+03d", value < 0 ? "-" : "", plain[0], digits - 1, plain + 2, power);
    return text;
}

/* Whether norms are as published, with a line for each. */
static int compare(const char *title, const double *found, const double *wanted, int speaks)
{
    int is_right = 1;
    char a[64], b[64], c[64];
    if (speaks)
        printf(" Comparison of RMS-norms of %s\n", title);
    for (int m = 0; m < VALUES; m++) {
        double off = fabs((found[m] - wanted[m]) / wanted[m]);
        int is_near = off <= EPSILON;
        is_right &= is_near;
        if (speaks)
            printf(" %s %2d%20s%20s%20s\n", is_near ? "         " : "FAILURE: ", m + 1, number(a, found[m], 13),
                   number(b, wanted[m], 13), number(c, off, 13));
    }
    return is_right;
}
