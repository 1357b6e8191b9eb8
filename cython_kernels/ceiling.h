/* What this machine can do at best; compiled per instruction set from the template. */
#include <stdint.h>

struct gather {
    int64_t threads, lines;
    int64_t share;       /* edges per thread, a multiple of four */
    const char *table;   /* [lines, 64] */
    const int32_t *line; /* [threads, share], which to add, below `lines` */
    char *sums;          /* [threads, 64] */
};

#define TEMPLATE "gather.inc"
#include "isa.inc"
static kernel_table gather_kernels = KERNELS(gather);
