/* The two sides of a collective operation: blocks as a program has them, and what MPI is given in place of them. */
#ifndef COVEY_PMPI_SIDES_H
#define COVEY_PMPI_SIDES_H

#include "pmpi.h"

/* Blocks of one side of an operation, one for each rank, as the program has them. */
struct blocks {
    char *data;
    int ranks;
    /* One count and type for all, or one for each. */
    int count;
    MPI_Datatype type;
    const int *counts;
    const MPI_Datatype *types;
    /* In extents, or in bytes with `types`; NULL: one after the other. */
    const int *displacements;
    /* In bytes, in place of those: of MPI_Neighbor_alltoallw. */
    const MPI_Aint *places;
};

/* What MPI is given in place of it. */
struct side {
    struct blocks blocks;
    /* 0: as the program has it; nothing is packed. */
    int is_ours;
    char *data;
    int count, *counts, *displacements;
    MPI_Datatype type, *types;
    /* NULL where the blocks are taken from where they lie. */
    char *buffer;
    uint64_t bytes;
};

struct operation {
    struct side out, in;
    int rank, ranks;
};

struct blocks same_blocks(const void *data, int count, MPI_Datatype type);
void side_pack(struct side *side, int only);
void side_unpack(struct side *side, int but);
int operation_begin(struct operation *operation, MPI_Comm comm);
int operation_open(struct operation *operation, const struct blocks *out, const struct blocks *in);
int operation_end(struct operation *operation, int code);

#define GIVEN(side, field, otherwise) ((side).is_ours ? (side).field : (otherwise))

#endif
