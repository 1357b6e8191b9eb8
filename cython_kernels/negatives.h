/* Pairs drawn that are not in a matrix: what `negatives.pyx` reads and writes. */
#include <stdint.h>

#include "random.h"

struct negatives {
    int64_t rows, cols, count, seed;
    const int64_t *rowptr; /* [rows + 1] */
    const int32_t *col;    /* [rowptr[rows]], ascending and distinct in each row */
    const int64_t *row;    /* [count], of each pair, none of them full; or NULL where it is drawn too */
    int64_t *out;          /* [2, count] */
};
