/* Random datatypes in every way that MPI has to send them. Each rank prints a line for each round, with a
 * hash of all memory that may have been written, gaps included, and of all statuses: what it prints must
 * not depend on who packs. usage: random SEED ROUNDS */
#include "types.h"

static int rank, ranks, round_number;
static uint64_t hash;

static void seen(const struct memory *memory)
{
    hash = hash_of(memory->base, memory->bytes, hash);
}

static void seen_status(MPI_Status *status, MPI_Datatype type)
{
    int numbers[5] = {0};
    MPI_Get_count(status, type, &numbers[0]);
    if (is_of_one_kind())
        MPI_Get_elements(status, type, &numbers[1]);
    MPI_Test_cancelled(status, &numbers[2]);
    numbers[3] = status->MPI_SOURCE;
    numbers[4] = status->MPI_TAG;
    hash = hash_of(numbers, sizeof numbers, hash);
}

/* What this rank has for another one in this round. */
static unsigned fill(int from, int number)
{
    return (unsigned)(round_number * 1000003 + from * 101 + number * 7 + 1);
}

/* ---- one after the other ---- */

static void blocking(MPI_Datatype type, int count)
{
    int way = dice(4), more = dice(3), as_bytes = dice(3) == 0, size;
    struct memory from = memory_for(type, count, fill(0, 0)), into = memory_for(type, count + more, 99);
    MPI_Status status;
    MPI_Type_size(type, &size);
    if (rank == 0) {
        if (way == 0)
            MPI_Send(from.at, count, type, 1, 5, MPI_COMM_WORLD);
        else if (way == 1)
            MPI_Ssend(from.at, count, type, 1, 5, MPI_COMM_WORLD);
        else if (way == 2) {
            int room, gone;
            MPI_Pack_size(count, type, MPI_COMM_WORLD, &room);
            void *buffer = malloc((size_t)room + MPI_BSEND_OVERHEAD), *back;
            MPI_Buffer_attach(buffer, room + MPI_BSEND_OVERHEAD);
            MPI_Bsend(from.at, count, type, 1, 5, MPI_COMM_WORLD);
            MPI_Buffer_detach(&back, &gone);
            free(buffer);
        } else {
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Rsend(from.at, count, type, 1, 5, MPI_COMM_WORLD);
        }
    } else if (rank == 1) {
        MPI_Request request;
        if (way == 3) {
            MPI_Irecv(into.at, count + more, type, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Wait(&request, &status);
            seen(&into), seen_status(&status, type);
        } else if (as_bytes) {
            /* The other side of the same message knows nothing of the type. */
            unsigned char *bytes = malloc((size_t)size * (size_t)count);
            MPI_Recv(bytes, size * count, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &status);
            hash = hash_of(bytes, (size_t)size * (size_t)count, hash);
            seen_status(&status, MPI_BYTE);
            free(bytes);
        } else {
            MPI_Recv(into.at, count + more, type, 0, 5, MPI_COMM_WORLD, &status);
            seen(&into), seen_status(&status, type);
        }
    } else if (way == 3) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    free(from.base), free(into.base);
}

static void both(MPI_Datatype type, int count)
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, ends = dice(4) == 0;
    struct memory from = memory_for(type, count, fill(rank, 0)), into = memory_for(type, count + 1, 77);
    MPI_Status status;
    /* A row with ends, or a ring. */
    if (ends && rank == ranks - 1)
        next = MPI_PROC_NULL;
    if (ends && rank == 0)
        before = MPI_PROC_NULL;
    MPI_Sendrecv(from.at, count, type, next, 3, into.at, count + 1, type, before, 3, MPI_COMM_WORLD, &status);
    seen(&into), seen_status(&status, type);
    MPI_Sendrecv_replace(from.at, count, type, next, 4, before, 4, MPI_COMM_WORLD,
                         dice(2) ? MPI_STATUS_IGNORE : &status);
    seen(&from);
    free(from.base), free(into.base);
}

/* ---- requests ---- */

enum { AT_ONCE = 6 };

static void complete(MPI_Request *requests, MPI_Status *statuses, int way)
{
    int done = 0, index, flag, indices[AT_ONCE], some;
    MPI_Status few[AT_ONCE];
    switch (way) {
    case 0:
        for (int i = 0; i < AT_ONCE; i++)
            MPI_Wait(&requests[i], &statuses[i]);
        return;
    case 1:
        MPI_Waitall(AT_ONCE, requests, statuses);
        return;
    case 2:
        for (int i = 0; i < AT_ONCE; i++) {
            MPI_Status one;
            MPI_Waitany(AT_ONCE, requests, &index, &one);
            statuses[index] = one;
        }
        return;
    case 3:
    case 4:
        while (done < AT_ONCE) {
            if (way == 3)
                MPI_Waitsome(AT_ONCE, requests, &some, indices, few);
            else
                MPI_Testsome(AT_ONCE, requests, &some, indices, few);
            for (int i = 0; i < some; i++)
                statuses[indices[i]] = few[i];
            done += some;
        }
        return;
    case 5:
        for (flag = 0; !flag;)
            MPI_Testall(AT_ONCE, requests, &flag, statuses);
        return;
    case 6:
        while (done < AT_ONCE) {
            MPI_Status one;
            MPI_Testany(AT_ONCE, requests, &index, &flag, &one);
            if (flag)
                statuses[index] = one, done++;
        }
        return;
    case 7:
        MPI_Waitall(AT_ONCE, requests, MPI_STATUSES_IGNORE);
        memset(statuses, 0, sizeof *statuses * AT_ONCE);
        return;
    default:
        for (int i = 0; i < AT_ONCE; i++)
            for (flag = 0; !flag;)
                MPI_Test(&requests[i], &flag, &statuses[i]);
    }
}

static void later(MPI_Datatype type, int count)
{
    struct memory memory[AT_ONCE];
    MPI_Request requests[AT_ONCE];
    MPI_Status statuses[AT_ONCE];
    MPI_Datatype own;
    int way = dice(9), synchronous = dice(3) == 0, peeks = dice(4) == 0;
    /* Freed while its messages are on their way. */
    MPI_Type_dup(type, &own);
    for (int i = 0; i < AT_ONCE; i++)
        memory[i] = memory_for(type, count, rank == 0 ? fill(0, i) : 55);
    if (rank == 0)
        for (int i = 0; i < AT_ONCE; i++)
            if (synchronous)
                MPI_Issend(memory[i].at, count, own, 1, i, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Isend(memory[i].at, count, own, 1, i, MPI_COMM_WORLD, &requests[i]);
    else if (rank == 1)
        for (int i = AT_ONCE - 1; i >= 0; i--)
            MPI_Irecv(memory[i].at, count, own, 0, i, MPI_COMM_WORLD, &requests[i]);
    MPI_Type_free(&own);
    if (rank < 2) {
        if (peeks) {
            int flag = 0;
            while (!flag)
                MPI_Request_get_status(requests[2], &flag, &statuses[2]);
            if (rank == 1)
                seen(&memory[2]), seen_status(&statuses[2], type);
        }
        complete(requests, statuses, way);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        if (rank == 1) {
            seen(&memory[i]);
            if (way != 7)
                seen_status(&statuses[i], type);
        }
        free(memory[i].base);
    }
}

static void again(MPI_Datatype type, int count)
{
    struct memory memory[AT_ONCE];
    MPI_Request requests[AT_ONCE];
    MPI_Status statuses[AT_ONCE];
    int way = dice(9), together = dice(2);
    for (int i = 0; i < AT_ONCE; i++) {
        memory[i] = memory_for(type, count, rank == 0 ? fill(0, i) : 55);
        if (rank == 0)
            MPI_Send_init(memory[i].at, count, type, 1, i, MPI_COMM_WORLD, &requests[i]);
        else if (rank == 1)
            MPI_Recv_init(memory[i].at, count, type, 0, i, MPI_COMM_WORLD, &requests[i]);
    }
    for (int time = 0; time < 3 && rank < 2; time++) {
        for (int i = 0; i < AT_ONCE; i++) {
            for (size_t at = 0; at < memory[i].bytes && rank == 0; at++)
                memory[i].base[at]++;
            if (!together)
                MPI_Start(&requests[i]);
        }
        if (together)
            MPI_Startall(AT_ONCE, requests);
        complete(requests, statuses, way);
        for (int i = 0; i < AT_ONCE && rank == 1; i++)
            seen(&memory[i]);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        if (rank < 2)
            MPI_Request_free(&requests[i]);
        free(memory[i].base);
    }
}

static void given_up(MPI_Datatype type, int count)
{
    struct memory memory = memory_for(type, count, fill(rank, 0)), other = memory_for(type, count, 33);
    MPI_Request request;
    MPI_Status status;
    int flag = 0;
    if (rank == 1) {
        /* Never matched. */
        MPI_Irecv(other.at, count, type, 0, 9999, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &flag);
        hash = hash_of(&flag, sizeof flag, hash);
        seen(&other);
        /* Freed before it has come; a later message says that it has. */
        MPI_Irecv(other.at, count, type, 0, 6, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
        MPI_Send(NULL, 0, MPI_BYTE, 0, 7, MPI_COMM_WORLD);
        MPI_Recv(&flag, 1, MPI_INT, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        seen(&other);
    } else if (rank == 0) {
        MPI_Recv(NULL, 0, MPI_BYTE, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(memory.at, count, type, 1, 6, MPI_COMM_WORLD);
        MPI_Send(&flag, 1, MPI_INT, 1, 8, MPI_COMM_WORLD);
    }
    /* A send that nobody asks about any more. */
    if (rank == 1) {
        MPI_Isend(memory.at, count, type, 0, 11, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
    } else if (rank == 0) {
        MPI_Recv(other.at, count, type, 1, 11, MPI_COMM_WORLD, &status);
        seen(&other), seen_status(&status, type);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    free(memory.base), free(other.base);
}

/* ---- collective ---- */

static void rooted(MPI_Datatype type, int count)
{
    int root = dice(ranks), in_place = dice(2), plain = dice(3) == 0, size;
    struct memory one = memory_for(type, count, fill(rank, 1)), all = memory_for(type, count * ranks, fill(rank, 2));
    MPI_Type_size(type, &size);
    MPI_Bcast(one.at, count, type, root, MPI_COMM_WORLD);
    seen(&one);
    /* What is not significant may be nonsense. */
    MPI_Datatype theirs = rank == root ? type : MPI_DATATYPE_NULL;
    void *here = rank == root ? all.at : NULL, *mine = in_place && rank == root ? MPI_IN_PLACE : (void *)one.at;
    MPI_Gather(mine, count, type, here, count, theirs, root, MPI_COMM_WORLD);
    seen(&all);
    MPI_Scatter(here, count, theirs, mine, count, type, root, MPI_COMM_WORLD);
    seen(&one);
    /* The root's type against plain bytes. */
    if (plain) {
        unsigned char *bytes = malloc((size_t)size * (size_t)count);
        memset(bytes, rank, (size_t)size * (size_t)count);
        if (rank == root)
            MPI_Scatter(all.at, count, type, MPI_IN_PLACE, 0, MPI_BYTE, root, MPI_COMM_WORLD);
        else
            MPI_Scatter(NULL, 0, MPI_DATATYPE_NULL, bytes, size * count, MPI_BYTE, root, MPI_COMM_WORLD);
        hash = hash_of(bytes, (size_t)size * (size_t)count, hash);
        free(bytes);
    }
    free(one.base), free(all.base);
}

static void rooted_each(MPI_Datatype type, int count)
{
    int root = dice(ranks), in_place = dice(2), counts[16], places[16], total = 0;
    for (int i = 0; i < ranks; i++) {
        counts[i] = dice(count + 1);
        places[i] = total + dice(2);
        total = places[i] + counts[i];
    }
    struct memory one = memory_for(type, count, fill(rank, 3)), all = memory_for(type, total, fill(rank, 4));
    void *mine = in_place && rank == root ? MPI_IN_PLACE : (void *)one.at;
    MPI_Gatherv(mine, counts[rank], type, all.at, counts, places, type, root, MPI_COMM_WORLD);
    seen(&all);
    MPI_Scatterv(all.at, counts, places, type, mine, counts[rank], type, root, MPI_COMM_WORLD);
    seen(&one);
    MPI_Allgatherv(in_place ? MPI_IN_PLACE : (void *)one.at, counts[rank], type, all.at, counts, places, type, MPI_COMM_WORLD);
    seen(&all);
    free(one.base), free(all.base);
}

static void everybody(MPI_Datatype type, int count)
{
    int in_place = dice(2), counts[16], places[16], bytes_places[16];
    MPI_Datatype types[16];
    MPI_Aint lower, extent;
    struct memory from = memory_for(type, count * ranks, fill(rank, 5)), into = memory_for(type, count * ranks, fill(rank, 6));
    MPI_Type_get_extent(type, &lower, &extent);
    MPI_Allgather(in_place ? MPI_IN_PLACE : (void *)from.at, count, type, into.at, count, type, MPI_COMM_WORLD);
    seen(&into);
    MPI_Alltoall(in_place ? MPI_IN_PLACE : (void *)from.at, count, type, into.at, count, type, MPI_COMM_WORLD);
    seen(&into);
    for (int i = 0; i < ranks; i++) {
        counts[i] = (rank + i) % (count + 1);
        places[i] = (ranks - 1 - i) * count;
        bytes_places[i] = (int)(places[i] * extent);
        types[i] = type;
    }
    MPI_Alltoallv(from.at, counts, places, type, into.at, counts, places, type, MPI_COMM_WORLD);
    seen(&into);
    MPI_Alltoallw(from.at, counts, bytes_places, types, into.at, counts, bytes_places, types, MPI_COMM_WORLD);
    seen(&into);
    free(from.base), free(into.base);
}

/* ---- by hand ---- */

static void by_hand(MPI_Datatype type, int count)
{
    struct memory from = memory_for(type, count, fill(rank, 0)), into = memory_for(type, count, 11);
    int room, position = 0, size;
    MPI_Type_size(type, &size);
    MPI_Pack_size(count, type, MPI_COMM_WORLD, &room);
    unsigned char *packed = calloc(1, (size_t)room + 8);
    MPI_Pack(from.at, count, type, packed, room + 8, &position, MPI_COMM_WORLD);
    hash = hash_of(packed, (size_t)size * (size_t)count, hash_of(&position, sizeof position, hash));
    int end = position;
    position = 0;
    MPI_Unpack(packed, end, &position, into.at, count, type, MPI_COMM_WORLD);
    hash = hash_of(&position, sizeof position, hash);
    seen(&into);
    free(packed), free(from.base), free(into.base);
}

int main(int argc, char **argv)
{
    static void (*const ways[])(MPI_Datatype, int) = {blocking, both, later, again, given_up, rooted, rooted_each, everybody, by_hand};
    enum { WAYS = sizeof ways / sizeof *ways };
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int rounds = argc > 2 ? atoi(argv[2]) : 100;
    char *lines = calloc((size_t)rounds, 80), *end = lines;
    for (round_number = 0; round_number < rounds; round_number++) {
        seed = (first * 1000003 + (uint64_t)round_number) * 0x9E3779B97F4A7C15ull;
        int way = dice(WAYS), large = dice(8) == 0, count = 1 + dice(5);
        MPI_Datatype type = random_type(large ? 100000 : 4000);
        hash = 0xcbf29ce484222325ull;
        ways[way](type, count);
        MPI_Type_free(&type);
        end += sprintf(end, "%d.%d way %d: %016llx\n", rank, round_number, way, (unsigned long long)hash);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    /* By one rank, so that nobody mixes them. */
    if (rank > 0)
        MPI_Send(lines, (int)(end - lines), MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    for (int from = 0; from < ranks && rank == 0; from++) {
        if (from > 0) {
            memset(lines, 0, (size_t)rounds * 80);
            MPI_Recv(lines, rounds * 80, MPI_CHAR, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        fputs(lines, stdout);
    }
    MPI_Finalize();
    return 0;
}
