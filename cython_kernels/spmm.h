/* Aggregation of sources into destinations; the kernels are compiled per instruction set from the templates. */
#include <stdint.h>

struct spmm {
    const int64_t *rowptr; /* [N + 1] */
    const int32_t *col;    /* [E] */
    const void *value;     /* [E, value_stride] or NULL for ones */
    const void *x;         /* [M, heads * width] */
    void *out;             /* [N, heads * width] */
    int32_t *arg_out;      /* [N, width], extrema only */
    int64_t heads, width;
    int64_t value_stride; /* 1, or heads where every head has its own values */
    int mean, min;
};

#define TEMPLATE "spmm_sum.h"
#include "isa.h"
static kernel_table spmm_sum_kernels = KERNELS(spmm_sum);
