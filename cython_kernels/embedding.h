/* Sums of rows of small tables, one row of each, and what they pass back. */
#include <stdint.h>

struct embedding {
    const void *in; /* the tables, one below the other, [starts[columns], width]; or grad_out [rows, width] */
    void *out;      /* the other of the two: sums [rows, width], or grad_table, given as zeros */
    const int64_t *categories; /* [rows, columns]: of table k, the row categories[i, k] */
    const int64_t *starts;     /* [columns + 1] of the tables, and their end */
    int64_t *lacking;          /* [1], given as 0: whether there is a category that its table lacks */
    int64_t rows, columns, width;
};

#define TEMPLATE "embedding.inc"
#include "isa.inc"
static longest_table embedding_sum_kernels = LONGEST(embedding_sum);
static longest_table embedding_add_kernels = LONGEST(embedding_add);
