/* Datatypes: noted when they are committed, described when they are first used, forgotten when MPI deletes
 * them, which the deletion of an attribute tells. */
#include "pmpi.h"
#include "covey-mpi.h"

enum { BUCKETS = 1024, COUNTS_KEPT = 4, PLAIN_SLOTS = 64 };

struct type {
    struct type *next;
    MPI_Datatype handle;
    struct facts facts;
    /* Described when it is first used. */
    int was_tried;
    covey_layout *layout;
    /* Of the last few counts. */
    struct ready *ready[COUNTS_KEPT];
    unsigned turn;
};

static struct type *types[BUCKETS];
/* Deleting a type inside a call of ours comes back here. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int keyval = MPI_KEYVAL_INVALID;

/* Plain types, which never go away: a slot never changes once it is set to one. */
static _Atomic uintptr_t plain[PLAIN_SLOTS];

static uintptr_t number_of(MPI_Datatype type)
{
    return (uintptr_t)type;
}

static unsigned hash(uintptr_t number)
{
    return (unsigned)((number * 0x9E3779B97F4A7C15ull) >> 40);
}

static struct type **place_of(MPI_Datatype handle)
{
    struct type **at = &types[hash(number_of(handle)) % BUCKETS];
    while (*at && (*at)->handle != handle)
        at = &(*at)->next;
    return at;
}

static struct type *insert(MPI_Datatype handle)
{
    struct type *type = calloc(1, sizeof *type);
    if (!type)
        return NULL;
    type->handle = handle;
    MPI_Aint lower = 0, extent = 0;
    MPI_Count size = 0;
    PMPI_Type_get_extent(handle, &lower, &extent);
    PMPI_Type_size_x(handle, &size);
    type->facts.size = size;
    type->facts.extent = extent;
    struct type **at = place_of(handle);
    type->next = *at;
    *at = type;
    return type;
}

/* ---- their life ---- */

static int deleted(MPI_Datatype handle, int key, void *value, void *extra)
{
    (void)key, (void)value, (void)extra;
    pthread_mutex_lock(&lock);
    struct type **at = place_of(handle), *gone = *at;
    if (gone)
        *at = gone->next;
    pthread_mutex_unlock(&lock);
    if (gone) {
        for (int i = 0; i < COUNTS_KEPT; i++)
            ready_release(gone->ready[i]);
        covey_layout_free(gone->layout);
        free(gone);
    }
    return MPI_SUCCESS;
}

/* A type that can be used from now on. */
static void note(MPI_Datatype handle)
{
    pthread_mutex_lock(&lock);
    if (keyval == MPI_KEYVAL_INVALID)
        PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, deleted, &keyval, NULL);
    if (!*place_of(handle) && keyval != MPI_KEYVAL_INVALID && insert(handle))
        /* What would not be told of its end must not be known. */
        if (PMPI_Type_set_attr(handle, keyval, NULL) != MPI_SUCCESS)
            deleted(handle, keyval, NULL, NULL);
    pthread_mutex_unlock(&lock);
}

int MPI_Type_commit(MPI_Datatype *handle)
{
    int integers, addresses, types_, combiner, code = real.Type_commit(handle);
    if (code != MPI_SUCCESS || settings.is_off)
        return code;
    if (covey_mpi_envelope(*handle, &integers, &addresses, &types_, &combiner) != COVEY_OK ||
        !covey_mpi_is_named(combiner))
        note(*handle);
    return code;
}
ALSO_AS_PMPI(Type_commit);

int MPI_Type_dup(MPI_Datatype old, MPI_Datatype *handle)
{
    int code = real.Type_dup(old, handle);
    if (code != MPI_SUCCESS || settings.is_off)
        return code;
    pthread_mutex_lock(&lock);
    /* The copy is committed if the type is. One of MPI's own is. */
    int integers, addresses, types_, combiner, is_committed = *place_of(old) != NULL;
    if (!is_committed)
        is_committed = covey_mpi_envelope(old, &integers, &addresses, &types_, &combiner) == COVEY_OK &&
                       covey_mpi_is_named(combiner);
    pthread_mutex_unlock(&lock);
    if (is_committed)
        note(*handle);
    return code;
}
ALSO_AS_PMPI(Type_dup);

/* ---- what is known of them ---- */

/* Describes a type, once. */
static covey_layout *describe(struct type *type)
{
    struct covey_form form;
    covey_plan *plan;
    if (type->was_tried)
        return type->layout;
    type->was_tried = 1;
    if (covey_layout_of_mpi(type->handle, &type->layout) != COVEY_OK) {
        type->layout = NULL;
        return NULL;
    }
    if (covey_plan_new(type->layout, 1, &plan) == COVEY_OK) {
        covey_plan_form(plan, &form);
        type->facts.is_contiguous = form.runs <= 1 && type->facts.extent == type->facts.size;
        type->facts.lower = form.begin;
        covey_plan_free(plan);
    }
    return type->layout;
}

/* A type of MPI's own is noted as plain, or known from now on. NULL for plain ones, and for those that
 * are not committed. */
static struct type *look_up(MPI_Datatype handle, int *is_plain)
{
    struct type *type = *place_of(handle);
    int integers, addresses, types_, combiner;
    MPI_Aint lower, extent;
    int size = 0;
    *is_plain = 0;
    if (type)
        return type;
    if (covey_mpi_envelope(handle, &integers, &addresses, &types_, &combiner) != COVEY_OK ||
        !covey_mpi_is_named(combiner))
        return NULL;
    PMPI_Type_size(handle, &size);
    PMPI_Type_get_extent(handle, &lower, &extent);
    *is_plain = lower == 0 && extent == size && (size & (size - 1)) == 0;
    if (!*is_plain)
        return insert(handle);
    uintptr_t free_slot = 0;
    atomic_compare_exchange_strong(&plain[hash(number_of(handle)) % PLAIN_SLOTS], &free_slot, number_of(handle));
    return NULL;
}

int type_is_plain(MPI_Datatype handle)
{
    uintptr_t number = number_of(handle);
    if (atomic_load_explicit(&plain[hash(number) % PLAIN_SLOTS], memory_order_relaxed) == number)
        return 1;
    if (handle == MPI_DATATYPE_NULL)
        return 1; /* MPI knows what to say. */
    int is_plain;
    pthread_mutex_lock(&lock);
    look_up(handle, &is_plain);
    pthread_mutex_unlock(&lock);
    return is_plain;
}

int type_facts(MPI_Datatype handle, struct facts *facts)
{
    int is_plain = 0, is_known = 1;
    MPI_Aint lower, extent;
    if (handle == MPI_DATATYPE_NULL)
        return 0;
    pthread_mutex_lock(&lock);
    struct type *type = look_up(handle, &is_plain);
    if (type) {
        describe(type);
        *facts = type->facts;
    } else if (is_plain) {
        PMPI_Type_get_extent(handle, &lower, &extent);
        *facts = (struct facts){extent, extent, 0, 1, 1};
    } else {
        is_known = 0;
    }
    pthread_mutex_unlock(&lock);
    return is_known;
}

/* ---- made ready ---- */

static struct ready *prepare(covey_layout *layout, uint64_t count)
{
    struct covey_form form;
    struct ready *ready = calloc(1, sizeof *ready);
    if (!ready || covey_plan_new(layout, count, &ready->plan) != COVEY_OK) {
        free(ready);
        return NULL;
    }
    covey_plan_form(ready->plan, &form);
    if (covey_target_new(layout, count, &ready->target) != COVEY_OK)
        ready->target = NULL;
    ready->users = 1;
    ready->count = count;
    ready->size = form.size;
    ready->runs = form.runs;
    ready->shape = form.shape;
    ready->begin = form.begin;
    ready->end = form.end;
    return ready;
}

static struct ready *ready_of(struct type *type, uint64_t count, enum use use)
{
    struct ready *found = NULL;
    for (int i = 0; i < COUNTS_KEPT && !found; i++)
        if (type->ready[i] && type->ready[i]->count == count)
            found = type->ready[i];
    if (!found && describe(type) && (found = prepare(type->layout, count))) {
        struct ready **slot = &type->ready[type->turn++ % COUNTS_KEPT];
        ready_release(*slot);
        *slot = found;
    }
    if (!found || (use == TO_WRITE && !found->target))
        return NULL;
    atomic_fetch_add_explicit(&found->users, 1, memory_order_relaxed);
    return found;
}

struct ready *type_ready(MPI_Datatype handle, uint64_t count, enum use use)
{
    int is_plain;
    pthread_mutex_lock(&lock);
    struct type *type = look_up(handle, &is_plain);
    struct ready *ready = type ? ready_of(type, count, use) : NULL;
    pthread_mutex_unlock(&lock);
    return ready;
}

/* Whether a message is worth a second look; counts those that are not. */
static int is_worth(struct type *type, int count)
{
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)type->facts.size, (uint64_t)count, &bytes) || bytes > settings.bytes_max) {
        COUNT(large, 1);
        return 0;
    }
    if (bytes < settings.bytes_min) {
        COUNT(small, 1);
        return 0;
    }
    return 1;
}

/* Whether MPI would take longer for the pieces than we for packing. */
static int has_short_runs(const struct ready *ready)
{
    int is_long = ready->shape == COVEY_SHAPE_STRIDED && ready->size > 256 << 10;
    uint64_t most = is_long ? settings.long_run_bytes_max : settings.run_bytes_max;
    return ready->runs > 1 && ready->size / ready->runs <= most;
}

struct ready *type_worth(MPI_Datatype handle, int count, enum use use)
{
    int is_plain;
    struct ready *ready = NULL;
    pthread_mutex_lock(&lock);
    struct type *type = look_up(handle, &is_plain);
    if (!type)
        COUNT(unknown, !is_plain);
    else if (is_worth(type, count)) {
        ready = ready_of(type, (uint64_t)count, use);
        if (!ready) {
            COUNT(unknown, 1);
        } else if (!has_short_runs(ready)) {
            COUNT(contiguous, 1);
            ready_release(ready);
            ready = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    return ready;
}

void ready_release(struct ready *ready)
{
    if (!ready || atomic_fetch_sub_explicit(&ready->users, 1, memory_order_acq_rel) > 1)
        return;
    covey_plan_free(ready->plan);
    covey_target_free(ready->target);
    free(ready);
}

void ready_pack(const struct ready *ready, const void *from, char *into)
{
    struct covey_memory memory = {(void *)from, ready->begin, ready->end};
    covey_pack(ready->plan, memory, 0, into, ready->size);
    COUNT(packed, 1);
    COUNT(packed_bytes, ready->size);
}

void ready_unpack(const struct ready *ready, const char *packed, uint64_t bytes, void *into)
{
    struct covey_memory memory = {into, ready->begin, ready->end};
    covey_unpack(ready->target, packed, bytes < ready->size ? bytes : ready->size, 0, memory);
    COUNT(unpacked, 1);
    COUNT(unpacked_bytes, bytes);
}
