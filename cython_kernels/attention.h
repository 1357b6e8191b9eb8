/* Fused attention; the kernels are compiled per instruction set from the templates. */
#include <stdint.h>

#include "random.h"

/* N destinations, M sources; a file in families/ says how edges are scored, per head, by vectors or numbers, of width 1.
 * Rows are destinations, or sources in the passes over the transpose. */
struct attention {
    int64_t rows, cols; /* N, M */
    int64_t walked;     /* rows of the pass: N, or M over the transpose */
    int64_t heads, width, channels;
    int64_t chunk; /* edges at a time, at most CHUNK */
    double slope;  /* of the leaky ReLU */
    double scale;  /* of the weights that dropout keeps, 1 / (1 - p) */
    int64_t drops;
    uint32_t low, high, threshold; /* words of the seed; the hashes below p * 2^32 are dropped */
    uint32_t first;                /* the number of edge 0, where other processes have edges before it */
    const int64_t *rowptr;         /* [walked + 1] */
    const int32_t *col;            /* [rowptr[walked]], or NULL in `terms` */
    const int32_t *perm;           /* [rowptr[walked]], the numbers of edges, over the transpose; or NULL */
    const void *query;             /* [rows, heads * width] */
    const void *key;               /* [cols, heads * width] */
    const void *value;             /* [cols, heads * channels] */
    const void *att;               /* [heads * width], or NULL */
    const void *grad_out;          /* [rows, heads * channels], or NULL but in `terms` */
    void *out;                     /* [rows, heads * channels], or NULL in passes over edges of a backward */
    void *stats;          /* [rows, heads * 2]: greatest score, sum of exp(score - greatest); or NULL, likewise */
    void *out_positive;   /* [rows, heads * channels], the share of edges with query + key > 0; or NULL */
    void *alpha_positive; /* [rows, heads], their part of the softmax, before dropout; or NULL */
    void *grad_query;     /* [rows, heads], by `terms` of the two above; or NULL */
    /* What `terms` makes of it, over the sum of exp, which passes over edges then need not read: */
    void *grad;       /* [rows, heads * channels], grad_out / sum; or NULL in forward */
    void *node;       /* [rows, heads * 2]: the greatest score, and <grad_out, out> / sum; or NULL in forward */
    void *grad_mine;  /* [walked, heads * width], of query or key: what `gradient` accumulates; or NULL */
    void *grad_value; /* [cols, heads * channels], or NULL but in `grad_key` */
};

#define CHUNK 128                                     /* edges at most, whose rows should fit the L1 cache together */
#define FILLED(count) (((count) + 15) & ~(int64_t)15) /* whole vectors */
#define GROUP 8                                       /* heads that share a walk over a row's edges */
#define SHORT 16                                      /* edges, below which heads share vectors */
#define PITCH(count) ((count) < SHORT ? (count) : FILLED(count)) /* numbers from one head's to those of the next */
#define PAIRS (GROUP * CHUNK + 16) /* edges and heads of a chunk, and a vector past their end */

/* A piece of a row's edges; the last column is repeated up to a full vector. */
struct chunk {
    int64_t count;
    int32_t col[CHUNK];
    uint32_t hash[CHUNK]; /* of the edges' numbers, where weights are dropped */
};

#define TEMPLATE "attention_rows.inc"
#include "isa.inc"
static kernel_table terms_kernels = KERNELS(terms);

#define PASSES(name) {#name, KERNELS(name##_forward), KERNELS(name##_grad_query), KERNELS(name##_grad_key)},
static struct passes {
    const char *family;
    kernel_table forward, grad_query, grad_key;
} families[] = {FAMILIES(PASSES)};
static const int family_count = sizeof(families) / sizeof(families[0]);
