/* Dropout by a hash of each number's place, which a backward pass draws again. */
#include <stdint.h>

#include "random.h"

struct dropout {
    int64_t count, first;         /* x[0] is number `first` of all, where other processes have those before it */
    const void *x;                /* [count] */
    void *out;                    /* [count] */
    int64_t low, high, threshold; /* words of the seed; the hashes below p * 2^32 are dropped */
    double scale;                 /* of the numbers that stay, 1 / (1 - p) */
};
#define PIECE 4096 /* numbers whose places share what the seed makes of them */

#define TEMPLATE "dropout.inc"
#include "isa.inc"
static longest_table dropout_kernels = LONGEST(dropout);
