/* Random datatypes as layouts: what covey-mpi.h describes is packed as MPI packs it, and put back as MPI puts
 * it back. usage: import SEED TYPES */
#include "types.h"
#include <covey-mpi.h>

static int check(MPI_Datatype type, int count)
{
    struct memory from = memory_for(type, count, 5), one = memory_for(type, count, 9), two = memory_for(type, count, 9);
    covey_layout *layout = NULL;
    covey_plan *plan = NULL;
    covey_target *target = NULL;
    struct covey_bounds bounds;
    struct covey_form form;
    MPI_Aint lower, extent;
    int room, position = 0, wrong = 0;
    if (covey_layout_of_mpi(type, &layout) != COVEY_OK) {
        printf("not described: %s\n", covey_last_error());
        return 1;
    }
    MPI_Type_get_extent(type, &lower, &extent);
    covey_layout_bounds(layout, &bounds);
    wrong |= bounds.lower != lower || bounds.upper != lower + extent;
    if (covey_plan_new(layout, (uint64_t)count, &plan) || covey_target_new(layout, (uint64_t)count, &target)) {
        printf("not ready: %s\n", covey_last_error());
        return 1;
    }
    covey_plan_form(plan, &form);
    MPI_Pack_size(count, type, MPI_COMM_SELF, &room);
    unsigned char *theirs = calloc(1, (size_t)room), *ours = calloc(1, form.size);
    MPI_Pack(from.at, count, type, theirs, room, &position, MPI_COMM_SELF);
    struct covey_memory memory = {from.at, form.begin, form.end}, into = {one.at, form.begin, form.end};
    wrong |= covey_pack(plan, memory, 0, ours, form.size) != COVEY_OK;
    wrong |= (uint64_t)position != form.size || memcmp(ours, theirs, form.size) != 0;
    int at = 0;
    wrong |= covey_unpack(target, ours, form.size, 0, into) != COVEY_OK;
    MPI_Unpack(theirs, position, &at, two.at, count, type, MPI_COMM_SELF);
    wrong |= memcmp(one.base, two.base, one.bytes) != 0;
    free(theirs), free(ours), free(from.base), free(one.base), free(two.base);
    covey_layout_free(layout), covey_plan_free(plan), covey_target_free(target);
    return wrong;
}

int main(int argc, char **argv)
{
    int failed = 0;
    MPI_Init(&argc, &argv);
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int types = argc > 2 ? atoi(argv[2]) : 1000;
    for (int i = 0; i < types; i++) {
        seed = (first * 1000003 + (uint64_t)i) * 0x9E3779B97F4A7C15ull;
        int count = 1 + dice(4);
        MPI_Datatype type = random_type(20000);
        if (check(type, count)) {
            printf("type %d is wrong\n", i);
            failed = 1;
        }
        MPI_Type_free(&type);
    }
    covey_layout *none = NULL;
    failed |= covey_layout_of_mpi(MPI_DATATYPE_NULL, &none) != COVEY_ERR_ARGUMENT || none != NULL;
    puts(failed ? "wrong" : "right");
    MPI_Finalize();
    return failed;
}
