/* Everything that covey.h has for layouts, used as a program would; ends with "right" on stdout. Memory is
 * taken from malloc byte by byte, so that valgrind and the sanitizers see what is touched. */
#include "covey.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed;

#define CHECK(condition)                                                                             \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, covey_last_error());           \
            failed = 1;                                                                              \
        }                                                                                            \
    } while (0)
#define WORKS(call) CHECK((call) == COVEY_OK)

static covey_layout *element(int number)
{
    covey_layout *made = NULL;
    WORKS(covey_layout_element(number, &made));
    return made;
}

/* The columns of a matrix of floats. */
static covey_layout *columns(uint64_t rows, uint64_t width)
{
    covey_layout *one = element(COVEY_F32), *column = NULL, *all = NULL;
    WORKS(covey_layout_vector(rows, 1, (int64_t)width, one, &column));
    WORKS(covey_layout_hvector(width, 1, sizeof(float), column, &all));
    covey_layout_free(column), covey_layout_free(one);
    return all;
}

static void a_transposition(void)
{
    enum { N = 100 };
    float *matrix = malloc(sizeof(float) * N * N), *packed = malloc(sizeof(float) * N * N);
    float *back = calloc(N * N, sizeof *back);
    covey_layout *layout = columns(N, N);
    covey_plan *plan = NULL;
    covey_target *target = NULL;
    struct covey_form form;
    for (int i = 0; i < N * N; i++)
        matrix[i] = (float)i;
    WORKS(covey_plan_new(layout, 1, &plan));
    WORKS(covey_target_new(layout, 1, &target));
    covey_layout_free(layout);
    WORKS(covey_plan_form(plan, &form));
    CHECK(form.size == sizeof(float) * N * N && form.begin == 0 && form.end == (int64_t)form.size);
    CHECK(form.shape == COVEY_SHAPE_TRANSPOSED && form.runs == N * N);
    WORKS(covey_pack(plan, covey_memory(matrix, form.size), 0, packed, form.size));
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            CHECK(packed[i * N + j] == matrix[j * N + i]);
    /* In two pieces, the second one first. */
    WORKS(covey_unpack(target, (char *)packed + 1234, form.size - 1234, 1234, covey_memory(back, form.size)));
    WORKS(covey_unpack(target, packed, 1234, 0, covey_memory(back, form.size)));
    CHECK(memcmp(back, matrix, form.size) == 0);
    WORKS(covey_target_form(target, &form));
    CHECK(form.size == sizeof(float) * N * N);
    covey_plan_free(plan), covey_target_free(target);
    free(matrix), free(packed), free(back);
}

static void every_constructor(void)
{
    covey_layout *byte = element(COVEY_BYTE), *number = element(COVEY_I32), *made = NULL, *other = NULL;
    struct covey_bounds bounds;
    WORKS(covey_layout_contiguous(3, number, &made));
    WORKS(covey_layout_bounds(made, &bounds));
    CHECK(bounds.size == 12 && bounds.lower == 0 && bounds.upper == 12);
    covey_layout_free(made);

    struct covey_block blocks[] = {{2, 5}, {1, 0}};
    WORKS(covey_layout_indexed(blocks, 2, number, &made));
    WORKS(covey_layout_bounds(made, &bounds));
    CHECK(bounds.size == 12 && bounds.upper == 28 && bounds.true_upper == 28);
    covey_layout_free(made);
    WORKS(covey_layout_hindexed(blocks, 2, byte, &made));
    WORKS(covey_layout_bounds(made, &bounds));
    CHECK(bounds.size == 3 && bounds.lower == 0 && bounds.upper == 7);

    struct covey_member members[] = {{1, 0, number}, {2, 8, made}};
    WORKS(covey_layout_struct(members, 2, &other));
    covey_layout_free(made);
    WORKS(covey_layout_bounds(other, &bounds));
    CHECK(bounds.size == 10 && bounds.upper == 24 && bounds.true_upper == 22);
    WORKS(covey_layout_resized(-4, 64, other, &made));
    WORKS(covey_layout_bounds(made, &bounds));
    CHECK(bounds.lower == -4 && bounds.upper == 60 && bounds.true_lower == 0);
    covey_layout_free(made), covey_layout_free(other);

    struct covey_axis axes[] = {{4, 1, 2}, {5, 2, 3}};
    char array[20], packed[6];
    for (int i = 0; i < 20; i++)
        array[i] = (char)('a' + i);
    for (int order = COVEY_ORDER_C; order <= COVEY_ORDER_FORTRAN; order++) {
        covey_plan *plan = NULL;
        WORKS(covey_layout_subarray(axes, 2, order, byte, &made));
        WORKS(covey_plan_new(made, 1, &plan));
        WORKS(covey_pack(plan, covey_memory(array, sizeof array), 0, packed, sizeof packed));
        CHECK(memcmp(packed, order == COVEY_ORDER_C ? "hijmno" : "jknors", 6) == 0);
        covey_plan_free(plan), covey_layout_free(made);
    }
    WORKS(covey_layout_dup(number, &made));
    covey_layout_free(number);
    WORKS(covey_layout_bounds(made, &bounds));
    CHECK(bounds.size == 4);
    covey_layout_free(made), covey_layout_free(byte);
    covey_layout_free(NULL), covey_plan_free(NULL), covey_target_free(NULL);
}

static void the_wire_form(void)
{
    covey_layout *layout = columns(7, 9), *decoded = NULL;
    struct covey_bounds one, two;
    size_t needed = 0;
    char few[1];
    CHECK(covey_layout_encode(layout, few, sizeof few, &needed) == COVEY_ERR_ROOM);
    CHECK(needed > 1 && needed < 64);
    char *wire = malloc(needed);
    WORKS(covey_layout_encode(layout, wire, needed, &needed));
    WORKS(covey_layout_decode(wire, needed, &decoded));
    WORKS(covey_layout_bounds(layout, &one));
    WORKS(covey_layout_bounds(decoded, &two));
    CHECK(memcmp(&one, &two, sizeof one) == 0);
    covey_layout_free(decoded);
    for (size_t cut = 0; cut < needed; cut++) {
        decoded = NULL;
        CHECK(covey_layout_decode(wire, cut, &decoded) != COVEY_OK && decoded == NULL);
    }
    wire[0] ^= 0x7f;
    CHECK(covey_layout_decode(wire, needed, &decoded) != COVEY_OK);
    free(wire), covey_layout_free(layout);
}

static void copying_and_adding(void)
{
    enum { ROWS = 5, WIDTH = 8 };
    float from[ROWS * WIDTH], into[ROWS * WIDTH];
    covey_layout *layout = columns(ROWS, WIDTH), *one = element(COVEY_F32), *flat = NULL;
    covey_plan *plan = NULL;
    covey_target *target = NULL;
    struct covey_run runs[4];
    size_t found = 0;
    for (int i = 0; i < ROWS * WIDTH; i++)
        from[i] = (float)i, into[i] = 1000;
    WORKS(covey_layout_contiguous(ROWS * WIDTH, one, &flat));
    WORKS(covey_plan_new(layout, 1, &plan));
    WORKS(covey_target_new(flat, 1, &target));
    WORKS(covey_copy(target, covey_memory(into, sizeof into), plan, covey_memory(from, sizeof from)));
    for (int i = 0; i < ROWS * WIDTH; i++)
        CHECK(into[i] == from[i % ROWS * WIDTH + i / ROWS]);
    WORKS(covey_accumulate(target, COVEY_SUM, into, 0, 0, covey_memory(into, sizeof into)));
    float added[] = {10, 20, 30}, before = into[1];
    WORKS(covey_accumulate(target, COVEY_SUM, added, sizeof added, sizeof(float), covey_memory(into, sizeof into)));
    CHECK(into[1] == before + 10 && into[0] == 0);
    CHECK(covey_accumulate(target, COVEY_BAND, added, sizeof added, 0, covey_memory(into, sizeof into)) == COVEY_ERR_OPERATION);
    CHECK(covey_accumulate(target, COVEY_SUM, added, 5, 0, covey_memory(into, sizeof into)) == COVEY_ERR_SPLIT);
    CHECK(covey_accumulate(target, 99, added, sizeof added, 0, covey_memory(into, sizeof into)) == COVEY_ERR_ARGUMENT);
    WORKS(covey_plan_runs(plan, sizeof(float), runs, 4, &found));
    CHECK(found == 4 && runs[0].packed == 4 && runs[0].offset == WIDTH * 4 && runs[0].bytes == 4);
    WORKS(covey_plan_runs(plan, sizeof(float) * (ROWS * WIDTH - 1), runs, 4, &found));
    CHECK(found == 1);
    unsigned number = 0x01020304;
    covey_layout *integer = element(COVEY_U32);
    WORKS(covey_swap(integer, 1, &number, sizeof number, 0));
    CHECK(number == 0x04030201);
    covey_layout_free(integer), covey_layout_free(layout), covey_layout_free(one), covey_layout_free(flat);
    covey_plan_free(plan), covey_target_free(target);
}

static void refusals(void)
{
    covey_layout *byte = element(COVEY_BYTE), *made = NULL, *deep = NULL;
    covey_plan *plan = NULL;
    covey_target *target = NULL;
    char memory[8] = "abcdefg", packed[8];
    CHECK(covey_layout_element(11, &made) == COVEY_ERR_ARGUMENT && made == NULL);
    CHECK(strstr(covey_last_error(), "11") != NULL);
    CHECK(covey_layout_element(COVEY_BYTE, NULL) == COVEY_ERR_ARGUMENT);
    CHECK(covey_layout_contiguous(2, NULL, &made) == COVEY_ERR_ARGUMENT);
    CHECK(covey_layout_hindexed(NULL, 3, byte, &made) == COVEY_ERR_ARGUMENT);
    CHECK(covey_layout_contiguous(UINT64_MAX, byte, &made) == COVEY_ERR_OVERFLOW);
    struct covey_axis axis = {4, 3, 2};
    CHECK(covey_layout_subarray(&axis, 1, 0, byte, &made) == COVEY_ERR_SUBARRAY);
    CHECK(covey_layout_subarray(&axis, 1, 7, byte, &made) == COVEY_ERR_ARGUMENT);

    WORKS(covey_layout_dup(byte, &deep));
    int result = COVEY_OK, levels = 0;
    while (result == COVEY_OK && levels++ < 100) {
        result = covey_layout_contiguous(1, deep, &made);
        if (result == COVEY_OK) {
            covey_layout_free(deep);
            deep = made;
        }
    }
    CHECK(result == COVEY_ERR_DEPTH);
    covey_layout_free(deep);

    WORKS(covey_layout_hvector(2, 2, 1, byte, &made));
    CHECK(covey_target_new(made, 1, &target) == COVEY_ERR_OVERLAP && target == NULL);
    covey_layout_free(made);
    WORKS(covey_layout_hvector(3, 1, 4, byte, &made));
    WORKS(covey_plan_new(made, 1, &plan));
    CHECK(covey_pack(plan, covey_memory(memory, sizeof memory), 0, packed, 3) == COVEY_ERR_BOUNDS);
    CHECK(covey_pack(plan, covey_memory(memory, 9), 2, packed, 2) == COVEY_ERR_PACKED);
    struct covey_memory wrong = {memory, 8, 0};
    CHECK(covey_pack(plan, wrong, 0, packed, 3) == COVEY_ERR_ARGUMENT);
    CHECK(covey_pack(NULL, covey_memory(memory, 8), 0, packed, 3) == COVEY_ERR_ARGUMENT);
    /* The origin may lie within. */
    struct covey_memory within = {memory + 4, -4, 4};
    covey_layout *before = NULL;
    covey_plan_free(plan);
    struct covey_block block = {2, -3};
    WORKS(covey_layout_hindexed(&block, 1, byte, &before));
    WORKS(covey_plan_new(before, 1, &plan));
    WORKS(covey_pack(plan, within, 0, packed, 2));
    CHECK(memcmp(packed, "bc", 2) == 0);
    WORKS(covey_target_new(made, 1, &target));
    CHECK(covey_copy(target, covey_memory(packed, 8), plan, within) == COVEY_ERR_SIZES);
    CHECK(strcmp(covey_strerror(COVEY_ERR_SIZES), covey_strerror(COVEY_OK)) != 0);
    covey_layout_free(before), covey_layout_free(made), covey_layout_free(byte);
    covey_plan_free(plan), covey_target_free(target);
}

static void *another(void *plan)
{
    float matrix[100] = {0}, packed[100];
    covey_layout *made = NULL;
    for (int i = 0; i < 50; i++)
        WORKS(covey_pack(plan, covey_memory(matrix, sizeof matrix), 0, packed, sizeof packed));
    CHECK(strcmp(covey_last_error(), "") == 0);
    CHECK(covey_layout_element(-1, &made) == COVEY_ERR_ARGUMENT);
    return NULL;
}

static void threads(void)
{
    covey_layout *layout = columns(10, 10);
    covey_plan *plan = NULL;
    pthread_t thread[4];
    WORKS(covey_plan_new(layout, 1, &plan));
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, another, plan) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    covey_plan_free(plan), covey_layout_free(layout);
}

int main(void)
{
    a_transposition();
    every_constructor();
    the_wire_form();
    copying_and_adding();
    refusals();
    threads();
    puts(failed ? "wrong" : "right");
    return failed;
}
