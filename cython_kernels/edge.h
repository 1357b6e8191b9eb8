/* Scores of edges; the kernels are compiled per instruction set from the templates. */
#include <stdint.h>

struct sddmm {
    int64_t rows, cols, heads, width;
    int64_t ahead;         /* edges between a prefetch and its use, 0 for none */
    const int64_t *rowptr; /* [rows + 1] */
    const int32_t *col;    /* [rowptr[rows]] */
    const void *a;         /* [rows, heads * width] */
    const void *b;         /* [cols, heads * width] */
    void *out;             /* [rowptr[rows], heads] */
};

struct softmax {
    int64_t rows;
    int64_t heads;         /* at most SOFTMAX_HEADS */
    const int64_t *rowptr; /* [rows + 1] */
    const void *score;     /* [rowptr[rows], heads], or alpha in backward */
    const void *grad;      /* [rowptr[rows], heads]: grad_alpha; or NULL */
    void *out;             /* [rowptr[rows], heads] */
};
#define SOFTMAX_HEADS 256

#define TEMPLATE "edge.inc"
#include "isa.inc"
static kernel_table sddmm_kernels = KERNELS(sddmm);
static kernel_table softmax_kernels = KERNELS(softmax);
static kernel_table softmax_backward_kernels = KERNELS(softmax_backward);
