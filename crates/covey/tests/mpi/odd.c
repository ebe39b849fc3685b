/* What programs do with MPI-IO that is odd, or wrong: each rank with a file of its own.
 *
 *   odd FILE
 *
 * Two threads write by one file pointer; types without a name that are predefined all the same; what is no type; modes
 * that forbid what is asked. Ends with 0 when the MPI library's rules held. */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS = 500 };

static MPI_File file;
static int failures;

#define MUST(what) ((what) ? (void)0 : (fprintf(stderr, "line %d: %s\n", __LINE__, #what), (void)failures++))

static int class_of(int code)
{
    int class = MPI_SUCCESS;
    if (code != MPI_SUCCESS)
        MPI_Error_class(code, &class);
    return class;
}

static void *writes(void *first)
{
    for (long i = 0, value = *(long *)first; i < RECORDS; i++, value++)
        MUST(MPI_File_write(file, &value, 1, MPI_LONG, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    return NULL;
}

/* Calls of threads are as if one came after the other: MPI 4.0, section 11.6.1. */
static void by_threads(void)
{
    static long found[2 * RECORDS], firsts[2] = {1, RECORDS + 1};
    char seen[2 * RECORDS + 1] = {0};
    pthread_t threads[2];
    MPI_Offset position;
    MPI_File_set_view(file, 0, MPI_LONG, MPI_LONG, "native", MPI_INFO_NULL);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, writes, &firsts[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    MPI_File_get_position(file, &position);
    MUST(position == 2 * RECORDS);
    MUST(MPI_File_read_at(file, 0, found, 2 * RECORDS, MPI_LONG, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    for (int i = 0; i < 2 * RECORDS; i++)
        if (found[i] > 0 && found[i] <= 2 * RECORDS)
            seen[found[i]] = 1;
    for (int i = 1; i <= 2 * RECORDS; i++)
        MUST(seen[i]);
}

static void odd_types(void)
{
    MPI_Datatype real, two;
    float out[2] = {1.5, 2.5}, in[2] = {0};
    MPI_Type_create_f90_real(6, MPI_UNDEFINED, &real);
    MPI_Type_contiguous(2, real, &two);
    MPI_Type_commit(&two);
    MPI_File_set_view(file, 0, real, two, "native", MPI_INFO_NULL);
    for (int i = 0; i < 3; i++)
        MUST(MPI_File_write_at(file, 0, out, 1, two, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    MUST(MPI_File_read_at(file, 0, in, 1, two, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    MUST(memcmp(in, out, sizeof out) == 0);
    MUST(class_of(MPI_File_write_at(file, 0, out, 1, MPI_DATATYPE_NULL, MPI_STATUS_IGNORE)) == MPI_ERR_TYPE);
    MPI_Type_free(&two);
}

int main(int argc, char **argv)
{
    int rank, level;
    char name[4096];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(name, sizeof name, "%s.%d", argv[1], rank);
    MUST(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    if (level == MPI_THREAD_MULTIPLE)
        by_threads();
    odd_types();
    MPI_File_close(&file);
    MUST(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    MUST(MPI_File_write_at(file, 0, name, 4, MPI_BYTE, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    MPI_File_close(&file);
    MPI_Finalize();
    if (failures == 0)
        puts("odd: right");
    return failures != 0;
}
