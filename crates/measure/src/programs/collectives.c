/* MPI's collectives, timed as the Pallas MPI Benchmarks and their successor IMB do: the bytes are those of one process's
 * message, and the time of a call is that of the process that took longest.
 *
 * Arguments: FILE SECONDS RANKS SIZE..., where RANKS is a list such as `2,4`. For each number of processes the first so
 * many take part, and the others sleep. Each case has about SECONDS. Each result is checked once. */
#include "timed.h"

struct job {
    long bytes;
    long words; /* Doubles in a message: at least one. */
    char *from, *into;
    double *sums, *summed;
    int root; /* Each in turn, so that none runs ahead of the others. */
};

static int next_root(const struct team *team, struct job *job)
{
    int root = job->root;
    job->root = (root + 1) % team->ranks;
    return root;
}

static void barrier(const struct team *team, void *what)
{
    (void)what;
    MPI_Barrier(team->all);
}

static void bcast(const struct team *team, void *what)
{
    struct job *job = what;
    MPI_Bcast(job->into, (int)job->bytes, MPI_BYTE, next_root(team, job), team->all);
}

static void reduce(const struct team *team, void *what)
{
    struct job *job = what;
    MPI_Reduce(job->sums, job->summed, (int)job->words, MPI_DOUBLE, MPI_SUM, next_root(team, job), team->all);
}

static void allreduce(const struct team *team, void *what)
{
    struct job *job = what;
    MPI_Allreduce(job->sums, job->summed, (int)job->words, MPI_DOUBLE, MPI_SUM, team->all);
}

static void allgather(const struct team *team, void *what)
{
    struct job *job = what;
    MPI_Allgather(job->from, (int)job->bytes, MPI_BYTE, job->into, (int)job->bytes, MPI_BYTE, team->all);
}

static void alltoall(const struct team *team, void *what)
{
    struct job *job = what;
    MPI_Alltoall(job->from, (int)job->bytes, MPI_BYTE, job->into, (int)job->bytes, MPI_BYTE, team->all);
}

/* Round the ring: each to its right, from its left. */
static void sendrecv(const struct team *team, void *what)
{
    struct job *job = what;
    int right = (team->rank + 1) % team->ranks, left = (team->rank + team->ranks - 1) % team->ranks;
    MPI_Sendrecv(job->from, (int)job->bytes, MPI_BYTE, right, 0, job->into, (int)job->bytes, MPI_BYTE, left, 0, team->all, MPI_STATUS_IGNORE);
}

/* What rank `from` has for rank `to`. */
static char mark(int from, int to)
{
    return (char)(17 * from + to + 1);
}

static int is_filled(const char *all, long bytes, char with)
{
    for (long i = 0; i < bytes; i++)
        if (all[i] != with)
            return 0;
    return 1;
}

static void fill(const struct team *team, struct job *job, int is_for_each)
{
    for (int to = 0; to < team->ranks; to++)
        memset(job->from + to * job->bytes, mark(team->rank, is_for_each ? to : 0), job->bytes);
    memset(job->into, team->rank == 0 ? mark(0, 0) : 0, job->bytes * team->ranks);
    for (long i = 0; i < job->words; i++)
        job->sums[i] = team->rank + 1, job->summed[i] = 0;
}

static int all_from(const struct team *team, const struct job *job, int is_for_each)
{
    for (int from = 0; from < team->ranks; from++)
        if (!is_filled(job->into + from * job->bytes, job->bytes, mark(from, is_for_each ? team->rank : 0)))
            return 0;
    return 1;
}

static int is_sum(const struct team *team, const struct job *job)
{
    double wanted = team->ranks * (team->ranks + 1) / 2.0;
    for (long i = 0; i < job->words; i++)
        if (job->summed[i] != wanted)
            return 0;
    return 1;
}

static int is_right(const struct team *team, const struct job *job, act *call)
{
    int left = (team->rank + team->ranks - 1) % team->ranks;
    if (call == bcast)
        return is_filled(job->into, job->bytes, mark(0, 0));
    if (call == sendrecv)
        return is_filled(job->into, job->bytes, mark(left, 0));
    if (call == allreduce || (call == reduce && team->rank == 0))
        return is_sum(team, job);
    return call == reduce || call == barrier || all_from(team, job, call == alltoall);
}

static void measure(const struct team *team, const char *name, act *call, long bytes, double seconds)
{
    struct job job = { bytes, bytes / 8 > 0 ? bytes / 8 : 1, 0, 0, 0, 0, 0 };
    job.from = memory(bytes * team->ranks), job.into = memory(bytes * team->ranks);
    job.sums = memory(job.words * sizeof(double)), job.summed = memory(job.words * sizeof(double));
    fill(team, &job, call == alltoall);
    call(team, &job);
    timed(team, name, bytes, is_right(team, &job, call), call, &job, seconds);
    free(job.from), free(job.into), free(job.sums), free(job.summed);
}

static void measure_all(const struct team *team, double seconds, char **sizes)
{
    static const struct {
        const char *name;
        act *call;
    } all[] = {
        { "sendrecv", sendrecv }, { "bcast", bcast },         { "reduce", reduce },
        { "allreduce", allreduce }, { "allgather", allgather }, { "alltoall", alltoall },
    };
    measure(team, "barrier", barrier, 0, seconds);
    for (char **size = sizes; *size; size++)
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            measure(team, all[i].name, all[i].call, atol(*size), seconds);
}

/* All meet here; who has nothing to do sleeps until the others come. */
static void meet(void)
{
    const struct timespec moment = { 0, 1000000 };
    int is_done = 0;
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (;;) {
        MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
        if (is_done)
            return;
        nanosleep(&moment, NULL);
    }
}

int main(int count, char **words)
{
    int rank, ranks;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (count < 5)
        abandon("too few arguments");
    begin_records(words[1]);
    for (char *team_size = strtok(words[3], ","); team_size; team_size = strtok(NULL, ",")) {
        int of_them = atoi(team_size);
        if (of_them < 2 || of_them > ranks)
            abandon("more processes are to take part than there are");
        struct team team = { MPI_COMM_NULL, rank, of_them };
        MPI_Comm_split(MPI_COMM_WORLD, rank < of_them ? 0 : MPI_UNDEFINED, rank, &team.all);
        if (team.all != MPI_COMM_NULL) {
            measure_all(&team, atof(words[2]), words + 4);
            MPI_Comm_free(&team.all);
        }
        meet();
    }
    end_all();
    return 0;
}
