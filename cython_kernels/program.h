/* Elementwise programs over edges, whose results are reduced by row or written for each edge. */
#include <stdint.h>
#include <stdlib.h>

enum {
    ADD,
    SUB,
    MUL,
    DIV,
    EQUAL,
    SCALE,
    SHIFT,
    EXP,
    SIGMOID,
    TANH,
    SOFTPLUS,
    RELU,
    LEAKY_RELU,
    SLOPE,
    TOTAL,
    SPREAD
};
enum { BY_COL, BY_ROW, BY_EDGE };
enum { SUM, MIN, MAX };

struct leaf {
    int64_t rows, width, place;
    const void *x; /* [rows, width] */
};

struct sink {
    int64_t rows, width, place, value, reduce, ties;
    void *out; /* [(1 + ties) * rows, width]: with ties, how many edges have an extremum follows on these */
};

struct program {
    int64_t rows, heads, width, leaves, sinks, steps;
    const int64_t *rowptr;  /* [rows + 1], from 0 on */
    const int32_t *col;     /* [rowptr[rows]] */
    const int32_t *edge_id; /* [rowptr[rows]], or NULL for their own order */
    const int32_t *code;    /* [steps, 4]: operation, two registers and the width of a third, the next one */
    const double *number;   /* [steps] */
    const struct leaf *leaf;
    const struct sink *sink;
    int64_t *failed; /* is set where there is no memory for registers */
};

/* An extremum is found again by its bits, wherever it is computed: products are rounded before they are added to. */
#ifdef __clang__
#pragma clang fp contract(off)
#else
#pragma GCC optimize("fp-contract=off")
#endif

#define TEMPLATE "program.inc"
#include "isa.inc"
static kernel_table program_kernels = KERNELS(program);
