/* Products of many rows with a small matrix: a linear layer, and its gradients in one pass over the rows. */
#include <stdint.h>
#include <string.h>

struct linear {
    int64_t rows, ins, outs, chunks;
    int64_t columns, depth, width; /* panels of the matrix, its rows, columns of a panel */
    const void *x;                 /* [rows, ins] */
    const void *weight;            /* [outs, ins] */
    const void *bias;              /* [outs], or NULL */
    void *out;                     /* [rows, outs], or NULL in backward */
    void *panels;                  /* [columns, depth + 1, width]: the matrix, and room for one more row */
    const void *grad_out;          /* [rows, outs], or NULL for the layer itself */
    void *grad_x;                  /* [rows, ins], or NULL where no one needs it */
    void *partial;     /* [chunks, outs, columns * width + 1], or NULL: of a chunk, gradients of weight and bias */
    void *grad_weight; /* [outs, ins], or NULL */
    void *grad_bias;   /* [outs], or NULL */
};

#define TEMPLATE "linear.inc"
#include "isa.inc"
static longest_table linear_pack_kernels = LONGEST(linear_pack), linear_kernels = LONGEST(linear_rows),
                     linear_chunk_kernels = LONGEST(linear_chunk), linear_end_kernels = LONGEST(linear_end);
