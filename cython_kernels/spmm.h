/* Aggregation of sources into destinations; the kernels are compiled per instruction set from the templates. */
#include <stdint.h>

struct spmm {
    int64_t rows, cols, heads, width, mean, min;
    int64_t ahead;         /* edges between a prefetch and its use, 0 for none */
    const int64_t *rowptr; /* [rows + 1] */
    const int32_t *col;    /* [rowptr[rows]] */
    const void *value;     /* [rowptr[rows], heads], or NULL for ones */
    const void *of_source; /* [cols], of every row of x, in the place of `value`, or NULL; sums only */
    const void *scale;     /* [rows], of what a row comes to, or NULL for ones; sums only */
    const void *bias;      /* [heads * width], added to every row then, or NULL; sums only */
    const void *x;         /* [cols, heads * width] */
    char *packed;          /* [cols, (width + 31) / 32 * 64], x in bf16; or NULL */
    void *out;             /* [rows, heads * width] */
    int32_t *arg_out;      /* [rows, width], or NULL for sums */
    int32_t *finite;       /* cleared by a source that is not, whose messages may be NaN; extrema only */
};

/* The gradient of extrema: every result's goes to the edge that it came from. */
struct scattered {
    int64_t rows, cols, width, edges;
    const int32_t *col;     /* [edges] */
    const void *value;      /* [edges], or NULL for ones */
    const int32_t *arg_out; /* [rows, width] */
    const void *grad_out;   /* [rows, width] */
    void *grad_x;           /* [cols, width], given as zeros */
};

/* The plan of a graph: its edges by blocks of 2^shift columns, then by row, in groups that one row's edges to a block
 * are filled up to; and what a product needs beside it. */
struct blocked {
    int64_t rows, cols, width, blocks, shift, groups, group, mean, min, bf16;
    int64_t finite_value;  /* whether no weight is NaN or infinite, extrema only */
    int64_t ahead;         /* edges between a prefetch and its use, 0 for none */
    const int64_t *rowptr; /* [rows + 1], of the graph itself */
    const int32_t *col;    /* [rowptr[rows]], likewise */
    int32_t *start;        /* [blocks, rows + 1], the first of each row's groups to a block */
    uint16_t *local;       /* [groups, group], column within its block, from 1, 0 for no edge; or NULL */
    const void *value;     /* [rowptr[rows]] in the order of the graph, or NULL for ones */
    void *ordered;         /* [groups, group], value in the order of the plan, 0 for no edge; or NULL */
    const void *of_source; /* [cols], of every row of x, or NULL for ones; sums only */
    const void *scale;     /* [rows], of what a row comes to, or NULL for ones; sums only */
    const void *bias;      /* [width], added to every row then, or NULL; sums only */
    const void *x;         /* [cols, width], or NULL */
    char *packed;          /* [cols + blocks, 128], the columns at hand, blocks behind a source of zeros; or NULL */
    char *sums;            /* [rows, (1 + bf16) * 128], what earlier blocks came to; or NULL */
    void *out;             /* [rows, width], or NULL */
    char *origin;          /* [rows, 128], edges that `sums` came from; or NULL for sums */
    char *seen;            /* [(rows + 15) / 16 * 64], edges in earlier rows and blocks; or NULL for sums */
    int32_t *arg_out;      /* [rows, width], or NULL for sums */
    int64_t column, lines; /* the first column at hand, and lines of 64 bytes per source */
    int32_t *finite;       /* cleared by a source or weight that is not; NULL if it does not matter */
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
