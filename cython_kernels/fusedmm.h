/* FusedMM; the kernel is compiled per instruction set from the template. */
#include <stdint.h>

/* In the order of `EDGE_FNS` in gnnbench/ops/kernels.py. */
enum edge_fn { IDENTITY, SIGMOID, EXP, LEAKY_RELU, TANH };
#define LEAKY_SLOPE 0.2

/* Row i of `out` is a sum over its edges (i, j), with s = <mine[i], theirs[j]>:
 *   of f(s) theirs[j];
 *   with my_grad, of f'(s) <my_grad[i], theirs[j]> theirs[j]: the gradient of x, where rows are destinations;
 *   with their_grad, of f'(s) <mine[i], their_grad[j]> theirs[j] + f(s) their_grad[j]: that of y, over the transpose. */
struct fusedmm {
    int64_t rows, cols, heads, width;
    int64_t fn;             /* enum edge_fn */
    const int64_t *rowptr;  /* [rows + 1] */
    const int32_t *col;     /* [rowptr[rows]] */
    const void *mine;       /* [rows, heads * width] */
    const void *theirs;     /* [cols, heads * width] */
    const void *my_grad;    /* [rows, heads * width], or NULL */
    const void *their_grad; /* [cols, heads * width], or NULL */
    void *out;              /* [rows, heads * width] */
};

#define CHUNK 64 /* edges whose rows are still in the cache when they are summed */

/* A piece of a row's edges; the last column is repeated up to a full vector. */
struct chunk {
    int64_t count;
    int32_t col[CHUNK];
};

#define TEMPLATE "fusedmm_rows.inc"
#include "isa.inc"
static kernel_table fusedmm_kernels = KERNELS(fusedmm);
