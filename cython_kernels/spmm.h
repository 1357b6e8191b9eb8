/* Aggregation of sources into destinations; the kernels are compiled per instruction set from the templates. */
#include <stdint.h>

struct spmm {
    const int64_t *rowptr; /* [N + 1] */
    const int32_t *col;    /* [E] */
    const void *value;     /* [E, heads], or NULL for ones */
    const void *x;         /* [M, heads * width] */
    void *packed;          /* [M, 64 bytes per 32 columns], x in bf16 */
    void *out;             /* [N, heads * width] */
    int32_t *arg_out;      /* [N, width], extrema only */
    int64_t rows, cols, heads, width, mean, min;
    int64_t ahead;   /* edges between a prefetch and its use, 0 for none */
    int32_t *finite; /* [1], cleared by a source that is not, whose messages may be NaN; extrema only */
};

/* The plan of a graph: its edges by blocks of 2^shift columns, then by row, in groups that one row's edges to a block
 * are filled up to; and what a product needs beside it. */
struct blocked {
    const int64_t *rowptr; /* [N + 1], of the graph itself */
    const int32_t *col;    /* [E], likewise */
    int32_t *start;        /* [blocks, N + 1], the first of each row's groups to a block */
    uint16_t *local;       /* [groups, group], column within its block, from 1; 0 for no edge */
    int64_t rows, blocks, shift, group;
    const void *value; /* [E] in the order of the graph, or NULL for ones */
    void *ordered;     /* [groups, group], value in the order of the plan, 0 for no edge */
    const void *x;     /* [M, width] */
    void *packed;      /* [M + blocks, lines], the columns of x at hand, of every block behind a source of zeros */
    void *sums;        /* [N, lines], or twice as many in bf16: what earlier blocks came to */
    void *out;         /* [N, width] */
    void *from;        /* [N, lines], edges that `sums` came from, extrema only */
    int32_t *seen;     /* [N], edges in earlier rows and blocks, extrema only */
    int32_t *arg_out;  /* [N, width], extrema only */
    int64_t cols, width, mean, min, bf16;
    int64_t finite_value;  /* whether no weight is NaN or infinite, extrema only */
    int64_t column, lines; /* the first column at hand, and lines of 64 bytes per source */
    int32_t *finite;       /* [1], cleared by a source or weight that is not; NULL if it does not matter */
};

#define TEMPLATE "spmm.inc"
#include "isa.inc"
static kernel_table spmm_sum_kernels = KERNELS(spmm_sum);
static kernel_table spmm_extremum_kernels = KERNELS(spmm_extremum);
static longest_table spmm_look_kernels = LONGEST(spmm_look);
static longest_table bf16_pack_kernels = LONGEST_FLOAT(bf16_pack);
static longest_table bf16_sum_kernels = LONGEST_FLOAT(bf16_sum);
static longest_table blocked_order_kernels = LONGEST(blocked_order);
static longest_table blocked_pack_kernels = LONGEST(blocked_pack);
static longest_table blocked_sum_kernels = LONGEST(blocked_sum);
static longest_table blocked_extremum_kernels = LONGEST(blocked_extremum);
