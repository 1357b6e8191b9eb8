/* Products of many rows with a small matrix: a linear layer, and its gradients in one pass over the rows. */
#include <stdint.h>
#include <string.h>

struct linear {
    const void *x, *weight, *bias; /* [rows, ins], [outs, ins], [outs] or NULL */
    const void *grad_out;          /* [rows, outs]; NULL for the layer itself */
    void *out;                     /* [rows, outs]; or the gradient of x [rows, ins], or NULL where no one needs it */
    void *panels;                  /* of the matrix that rows are multiplied by, and room for one more row */
    void *partial; /* of each chunk of rows: gradients of weight [panels, outs, PANEL] and bias [outs] */
    void *grad_weight, *grad_bias; /* [outs, ins], [outs] */
    int64_t rows, ins, outs, chunks;
};

#define TEMPLATE "linear.inc"
#include "isa.inc"
static longest_table linear_pack_kernels = LONGEST(linear_pack), linear_kernels = LONGEST(linear_rows),
                     linear_chunk_kernels = LONGEST(linear_chunk), linear_end_kernels = LONGEST(linear_end);
