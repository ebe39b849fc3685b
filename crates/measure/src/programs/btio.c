/* BTIO: the block-tridiagonal benchmark of the NAS Parallel Benchmarks with output of its solution, written anew from
 * its description (RNR-94-007 and NAS-03-002). A square number of processes, each with a cell in every layer of the
 * grid, makes steps in time; every fifth solution is written, and all are read back in the end.
 *
 *     mpiexec -n 4 btio S|W|A|B|C none|full|simple|fortran|epio DIRECTORY [keep] [cold] [phases]
 *
 * It says what NASA's program says, in the same lines, so that results can be laid side by side. The file goes when
 * it was read back, unless it is to be kept. With `cold` it is on stable storage and out of the caches before it is read
 * back; with `phases` the first process says when each phase began, by the clock that all programs of a machine share. */
#define _GNU_SOURCE
#include "finish.h"
#include "btio_grid.h"
#include "btio_flow.h"
#include "btio_solve.h"
#include "btio_files.h"
#include "btio_verify.h"
#include <time.h>

/* Steps from one output to the next, and from one line about them. */
enum { WRITE_INTERVAL = 5, SPEAK_INTERVAL = 20 };

/* What the program does from one time on. */
struct phase {
    const char *name;
    double begin;
};

enum { PHASES_MAX = 256 };

struct run {
    const struct class *class;
    struct steps steps;
    struct grid grid;
    struct sweeps sweeps;
    struct file file;
    int speaks, dumps, is_cold, tells_phases, phases;
    struct phase phase[PHASES_MAX];
    /* Seconds: of the steps with their output, and of output. */
    double whole, output;
    struct read_back input;
};

static void enter(struct run *run, const char *name)
{
    struct timespec now;
    if (!run->tells_phases || !run->speaks || run->phases == PHASES_MAX)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    run->phase[run->phases++] = (struct phase){ name, (double)now.tv_sec + (double)now.tv_nsec * 1e-9 };
}

static void step(struct run *run)
{
    find_rhs(&run->grid, &run->steps);
    sweep(&run->grid, &run->steps, &run->sweeps);
    advance(&run->grid);
}

static void introduce(const struct run *run)
{
    int side = run->class->side;
    if (!run->speaks)
        return;
    printf("\n\n NAS Parallel Benchmarks -- BT Benchmark, Covey's own program\n\n");
    printf(" Size: %4dx%4dx%4d  (class %c)\n", side, side, side, run->class->letter);
    printf(" Iterations: %4d    dt: %11.7f\n", run->class->iterations, run->class->time);
    printf(" Total number of processes: %6d\n", run->grid.ranks);
    if (run->file.option != NONE) {
        const char *const names[OPTIONS] = { "", "FULL MPI-IO", "SIMPLE MPI-IO", "FORTRAN FILE I/O", "EP I/O" };
        printf("\n BTIO -- %s write interval: %3d\n", names[run->file.option], WRITE_INTERVAL);
    }
    printf("\n");
}

static double maximum(double mine)
{
    double all;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

/* By custom the harmonic mean of what the processes took. */
static double harmonic_mean(double mine, int ranks)
{
    double inverse = 1 / (mine > 1e-9 ? mine : 1e-9), all;
    MPI_Allreduce(&inverse, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return ranks / all;
}

static void solve(struct run *run)
{
    struct grid *grid = &run->grid;
    find_forcing(grid, &run->steps);
    /* One step touches all memory, and does not count. */
    begin_flow(grid);
    step(run);
    begin_flow(grid);
    enter(run, "open");
    open_file(grid, &run->file, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    enter(run, "steps");
    double begin = MPI_Wtime(), output;
    for (int n = 1; n <= run->class->iterations; n++) {
        if (run->speaks && (n == 1 || n % SPEAK_INTERVAL == 0))
            printf(" Time step %4d\n", n);
        step(run);
        if (run->file.option != NONE && (n % WRITE_INTERVAL == 0 || n == run->class->iterations)) {
            enter(run, "output");
            output = MPI_Wtime();
            move_dump(grid, &run->file, run->dumps++, 1);
            run->output += MPI_Wtime() - output;
            enter(run, "steps");
        }
    }
    enter(run, "output");
    output = MPI_Wtime();
    close_file(&run->file);
    run->output += MPI_Wtime() - output;
    run->whole = maximum(MPI_Wtime() - begin);
    run->output = harmonic_mean(run->output, grid->ranks);
}

static int verify(struct run *run)
{
    double residual[VALUES], *error = run->input.error;
    const struct class *class = run->class;
    char epsilon[64];
    if (run->file.option == NONE) {
        error_norm(&run->grid, error);
    } else {
        enter(run, "settle");
        if (run->is_cold)
            chill(&run->file);
        MPI_Barrier(MPI_COMM_WORLD);
        enter(run, "read");
        run->input = read_back(&run->grid, &run->file, run->dumps);
    }
    enter(run, "end");
    run->input.seconds = maximum(run->input.seconds);
    residual_norm(&run->grid, &run->steps, residual);
    if (run->speaks)
        printf("\n Verification being performed for class %c\n accuracy setting for epsilon = %s\n", class->letter,
               number(epsilon, EPSILON, 13));
    int is_right = compare("residual", residual, class->residual, run->speaks);
    is_right &= compare("solution error", error, run->file.option == NONE ? class->error : class->errors, run->speaks);
    if (run->speaks)
        printf(" Verification %s\n", is_right ? "Successful" : "failed");
    return is_right;
}

static void say_output(const struct run *run)
{
    double points = pow(run->class->side, 3), megabytes = points * sizeof(point) * run->dumps * 1e-6;
    printf("\n BTIO -- statistics:\n");
    printf("   I/O timing in seconds   : %14.2f\n", run->output);
    printf("   I/O timing percentage   : %14.2f\n", 100 * run->output / run->whole);
    printf("   Total data written (MB) : %14.2f\n", megabytes);
    printf("   I/O data rate  (MB/sec) : %14.2f\n", megabytes / run->output);
    printf("   Read back in seconds    : %14.2f\n", run->input.seconds);
    printf("   Sum of what was read    : %016llx\n", (unsigned long long)run->input.sum);
}

static void say_phases(const struct run *run)
{
    for (int n = 0; n < run->phases; n++)
        printf(" Phase %-8s %20.6f\n", run->phase[n].name, run->phase[n].begin);
}

static void say_results(const struct run *run, int is_right)
{
    const struct class *class = run->class;
    double n = class->side, operations = class->iterations * (3478.8 * n * n * n - 17655.7 * n * n + 28023.7 * n);
    double rate = run->whole > 0 ? operations * 1e-6 / run->whole : 0;
    char date[64];
    time_t now = time(NULL);
    strftime(date, sizeof date, "%d %b %Y", localtime(&now));
    printf("\n\n BT Benchmark Completed.\n");
    printf(" Class           = %24c\n", class->letter);
    printf(" Size            =           %4dx%4dx%4d\n", class->side, class->side, class->side);
    printf(" Iterations      = %24d\n", class->iterations);
    printf(" Time in seconds = %24.2f\n", run->whole);
    printf(" Total processes = %24d\n", run->grid.ranks);
    printf(" Active processes= %24d\n", run->grid.ranks);
    printf(" Mop/s total     = %24.2f\n", rate);
    printf(" Mop/s/process   = %24.2f\n", rate / run->grid.ranks);
    printf(" Operation type  = %24s\n", "floating point");
    printf(" Verification    = %24s\n", is_right ? "SUCCESSFUL" : "UNSUCCESSFUL");
    printf(" Version         = %24s\n", "Covey");
    printf(" Run date        = %24s\n\n", date);
}

int main(int count, char **words)
{
    MPI_Init(&count, &words);
    static struct run run;
    int option = 0, keeps = 0;
    run.class = count > 1 ? class_of(words[1]) : NULL;
    while (count > 2 && option < OPTIONS && strcmp(words[2], OPTION_NAMES[option]) != 0)
        option++;
    if (!run.class || count < 4 || option == OPTIONS)
        abandon("begin", "the words are: S|W|A|B|C none|full|simple|fortran|epio DIRECTORY [keep] [cold] [phases]");
    for (int n = 4; n < count; n++) {
        keeps |= strcmp(words[n], "keep") == 0;
        run.is_cold |= strcmp(words[n], "cold") == 0;
        run.tells_phases |= strcmp(words[n], "phases") == 0;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    run.steps = steps_of(run.class->side, run.class->time);
    run.grid = grid_of(run.class->side);
    run.sweeps = sweeps_of(&run.grid);
    run.file = file_of(&run.grid, option, words[3]);
    run.speaks = run.grid.rank == 0;
    introduce(&run);
    solve(&run);
    int is_right = verify(&run);
    MPI_Barrier(MPI_COMM_WORLD);
    if (option != NONE && !keeps && (option == EPIO || run.speaks))
        tried_call(&run.file, "remove", unlink(run.file.name) == 0);
    if (run.speaks && option != NONE)
        say_output(&run);
    if (run.speaks)
        say_phases(&run), say_results(&run, is_right);
    forget(&run.file);
    finish();
    return 0;
}
