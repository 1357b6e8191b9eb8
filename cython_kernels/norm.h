/* Batch norm with the ReLU after it: the moments of every column, and rows by them. */
#include <stdint.h>

struct norm {
    const void *x, *grad_out;  /* [rows, width] */
    void *out;                 /* [rows, width]: normalised rows, or the gradient of x */
    const void *weight, *bias; /* [width] */
    void *mean, *var;          /* [width], of x; over all rows, not one less */
    void *grad_weight, *grad_bias;
    double *partial; /* [chunks, 5, width]: of each chunk two sums, and room to work in */
    int64_t rows, width, chunks, relu;
    double eps;
};
#define BLOCK 64 /* rows whose sums are accumulated in the type of x */

#define TEMPLATE "norm.inc"
#include "isa.inc"
static longest_table moments_kernels = LONGEST(moments), moments_end_kernels = LONGEST(moments_end),
                     normalise_kernels = LONGEST(normalise), scales_kernels = LONGEST(scales),
                     grad_sums_kernels = LONGEST(grad_sums), grad_sums_end_kernels = LONGEST(grad_sums_end),
                     grad_rows_kernels = LONGEST(grad_rows);
