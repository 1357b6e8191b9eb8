/* Batch norm with the ReLU after it: the moments of every column, and rows by them. */
#include <stdint.h>

struct norm {
    int64_t rows, width, chunks, relu;
    double eps;
    const void *x;        /* [rows, width] */
    const void *grad_out; /* [rows, width], or NULL */
    void *out;            /* [rows, width]: normalised rows, or the gradient of x */
    const void *weight;   /* [width] */
    const void *bias;     /* [width] */
    void *mean;           /* [width], of x */
    void *var;            /* [width], of x over all rows, not one less */
    void *grad_weight;    /* [width], or NULL */
    void *grad_bias;      /* [width], or NULL */
    double *partial;      /* [chunks, 5, width]: of each chunk two sums, and room to work in */
};
#define BLOCK 64 /* rows whose sums are accumulated in the type of x */

#define TEMPLATE "norm.inc"
#include "isa.inc"
static longest_table moments_kernels = LONGEST(moments), moments_end_kernels = LONGEST(moments_end),
                     normalise_kernels = LONGEST(normalise), scales_kernels = LONGEST(scales),
                     grad_sums_kernels = LONGEST(grad_sums), grad_sums_end_kernels = LONGEST(grad_sums_end),
                     grad_rows_kernels = LONGEST(grad_rows);
