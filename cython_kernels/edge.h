/* Scores of edges; the kernels are compiled per instruction set from the templates. */
#include <stdint.h>

struct sddmm {
    const int64_t *rowptr; /* [N + 1] */
    const int32_t *col;    /* [E] */
    const void *a;         /* [N, heads * width] */
    const void *b;         /* [M, heads * width] */
    void *out;             /* [E, heads] */
    int64_t rows, heads, width;
    int64_t ahead; /* edges between a prefetch and its use, 0 for none */
};

struct softmax {
    const int64_t *rowptr; /* [N + 1] */
    const void *in;        /* [E, heads]: score, or alpha in backward */
    const void *grad;      /* [E, heads]: grad_alpha, backward only */
    void *out;             /* [E, heads] */
    int64_t rows;
    int64_t heads; /* at most SOFTMAX_HEADS */
};
#define SOFTMAX_HEADS 256

#define TEMPLATE "edge.inc"
#include "isa.inc"
static kernel_table sddmm_kernels = KERNELS(sddmm);
static kernel_table softmax_kernels = KERNELS(softmax);
static kernel_table softmax_backward_kernels = KERNELS(softmax_backward);
