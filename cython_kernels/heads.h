/* Scores of the heads of every row by vectors, and the gradients of both in one pass over the rows. */
#include <stdint.h>

struct heads {
    int64_t rows, heads, width, count, chunks;
    const void *x;        /* [rows, heads, width] */
    const void *att;      /* [count, heads, width] */
    void *out;            /* [count, rows, heads], or NULL in backward */
    const void *grad_out; /* [count, rows, heads], or NULL */
    void *grad_x;         /* [rows, heads, width], or NULL */
    void *partial;        /* [chunks, count, heads, width], or NULL: of a chunk of rows, the gradient of att */
    void *grad_att;       /* [count, heads, width], or NULL */
};

#define TEMPLATE "heads.inc"
#include "isa.inc"
static kernel_table heads_kernels = KERNELS(heads), heads_backward_kernels = KERNELS(heads_backward),
                    heads_end_kernels = KERNELS(heads_end);
