/* Aggregation of sources into destinations; the kernels are compiled per instruction set from the templates. */
#include <stdint.h>

struct spmm {
    const int64_t *rowptr; /* [N + 1] */
    const int32_t *col;    /* [E] */
    const void *value;     /* [E, heads], or NULL for ones */
    const void *x;         /* [M, heads * width] */
    void *out;             /* [N, heads * width] */
    int32_t *arg_out;      /* [N, width], extrema only */
    int64_t heads, width;
    int mean, min;
};

#define AHEAD 12 /* edges between a prefetch and its use */

#define TEMPLATE "spmm_sum.h"
#include "isa.h"
static kernel_table spmm_sum_kernels = KERNELS(spmm_sum);

#define TEMPLATE "spmm_extremum.h"
#include "isa.h"
static kernel_table spmm_extremum_kernels = KERNELS(spmm_extremum);
