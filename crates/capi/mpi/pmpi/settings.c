/* What the environment says, the MPI library's own functions, and what is told at the end. */
#include "pmpi.h"
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

struct real real;
struct counters counters;
struct settings settings;

/* The longest pieces that are worth it, and those of a long plain vector, as measured: Open MPI packs a piece in
 * 1.5 ns and packs, carries and unpacks at the same time, MPICH takes ten times that for small ones. */
#ifdef OPEN_MPI
#define BUILT_FOR "Open MPI"
enum { RUN_BYTES = 8, LONG_RUN_BYTES = 4 };
#else
#define BUILT_FOR "MPICH"
enum { RUN_BYTES = 64, LONG_RUN_BYTES = 64 };
#endif

/* A number of bytes from the environment. */
static uint64_t bytes_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return otherwise;
    unsigned long long value = strtoull(text, &end, 10);
    if (*end) {
        fprintf(stderr, "covey-pmpi: %s is `%s`, which is no number of bytes: %llu is used\n", name, text,
                (unsigned long long)otherwise);
        return otherwise;
    }
    return value;
}

static int windows_of(const char *text)
{
    if (!text || !*text || strcmp(text, "scattered") == 0)
        return WINDOWS_SCATTERED;
    if (strcmp(text, "off") == 0)
        return WINDOWS_OFF;
    if (strcmp(text, "all") != 0)
        fprintf(stderr, "covey-pmpi: COVEY_PMPI_WINDOWS is `%s`, not off, scattered or all: all is used\n", text);
    return WINDOWS_ALL;
}

/* Handles of one MPI library mean nothing to another one: better no start than a crash. */
static void check_library(void *function)
{
    Dl_info info;
    void *library = dladdr(function, &info) ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (!library)
        return;
    int is_open_mpi = dlsym(library, "ompi_mpi_comm_world") != NULL;
    dlclose(library);
#ifdef OPEN_MPI
    if (is_open_mpi)
        return;
#else
    if (!is_open_mpi)
        return;
#endif
    fprintf(stderr, "covey-pmpi: built for " BUILT_FOR ", the program uses %s\nhint: preload the library that is "
            "built for %s\n", info.dli_fname, is_open_mpi ? "Open MPI" : "MPICH");
    _exit(1);
}

__attribute__((constructor)) static void start(void)
{
#define FIND(name) real.name = (__typeof__(real.name))dlsym(RTLD_NEXT, "PMPI_" #name);
    WRAPPED(FIND)
#undef FIND
    if (real.Send)
        check_library((void *)real.Send);
    const char *state = getenv("COVEY_PMPI"), *report = getenv("COVEY_PMPI_REPORT");
    settings.is_off = state && strcmp(state, "off") == 0;
    settings.reports = report && strcmp(report, "1") == 0;
    settings.windows = windows_of(getenv("COVEY_PMPI_WINDOWS"));
    settings.bytes_min = bytes_of("COVEY_PMPI_MIN_BYTES", 512);
    settings.bytes_max = bytes_of("COVEY_PMPI_MAX_BYTES", 1u << 30);
    settings.run_bytes_max = bytes_of("COVEY_PMPI_RUN_BYTES", RUN_BYTES);
    settings.long_run_bytes_max = bytes_of("COVEY_PMPI_RUN_BYTES", LONG_RUN_BYTES);
    if (settings.bytes_max > INT_MAX)
        settings.bytes_max = INT_MAX;
}

static void report(void)
{
    int rank = 0;
    unsigned long long left = counters.contiguous + counters.small + counters.large + counters.unknown;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fprintf(stderr,
            "covey-pmpi: rank %d: %llu messages packed (%llu bytes), %llu unpacked (%llu bytes), %llu collective "
            "operations; %llu left to MPI: %llu contiguous or in long pieces, %llu small, %llu large, %llu of "
            "types that are not known; %llu one-sided operations direct (%llu bytes), %llu through MPI\n",
            rank, counters.packed, counters.packed_bytes, counters.unpacked, counters.unpacked_bytes,
            counters.collectives, left, counters.contiguous, counters.small, counters.large, counters.unknown,
            counters.direct, counters.direct_bytes, counters.indirect);
}

int MPI_Finalize(void)
{
    look_after_orphans();
    if (settings.reports)
        report();
    return real.Finalize();
}
ALSO_AS_PMPI(Finalize);
