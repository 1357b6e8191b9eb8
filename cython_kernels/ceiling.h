/* What this machine can do at best; compiled per instruction set from the template. */
#include <stdint.h>

struct gather {
    const char *table;   /* lines of 64 bytes */
    const int32_t *line; /* [E], which to add */
    char *sums;          /* one line per thread */
    int64_t share;       /* edges per thread, a multiple of four */
};

#define TEMPLATE "gather.inc"
#include "isa.inc"
static kernel_table gather_kernels = KERNELS(gather);
