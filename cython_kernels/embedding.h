/* Sums of rows of small tables, one row of each, and what they pass back. */
#include <stdint.h>

struct embedding {
    int64_t rows, columns, width;
    const int64_t *categories; /* [rows, columns]: of table k, the row categories[i, k] */
    const int64_t *starts;     /* [columns + 1] of the tables, and their end */
    const void *table;         /* [starts[columns], width], the tables one below the other; or NULL in backward */
    void *out;                 /* [rows, width], or NULL in backward */
    const void *grad_out;      /* [rows, width], or NULL */
    void *grad_table;          /* [starts[columns], width], given as zeros; or NULL */
    int64_t *lacking;          /* [1], given as 0: whether there is a category that its table lacks */
};

#define TEMPLATE "embedding.inc"
#include "isa.inc"
static longest_table embedding_sum_kernels = LONGEST(embedding_sum);
static longest_table embedding_add_kernels = LONGEST(embedding_add);
