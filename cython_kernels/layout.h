/* Edges in rows: what `layout.pyx` reads and writes. */
#include <stdint.h>

struct edge {
    int32_t row, col, id;
};

/* Edges as they are given, COO or a CSR matrix whose transpose is wanted, and the rows being built, through buckets of
 * 2^shift neighbouring rows that one thread sorts within its cache. */
struct sorting {
    int64_t num_edges, num_rows, num_cols;
    const int64_t *coo_row;    /* [num_edges], or NULL */
    const int64_t *coo_col;    /* [num_edges], or NULL */
    const int64_t *csr_rowptr; /* [num_cols + 1], or NULL */
    const int32_t *csr_col;    /* [num_edges], or NULL */
    int64_t *rowptr;           /* [num_rows + 1] */
    int32_t *col;              /* [num_edges] */
    int32_t *perm;             /* [num_edges] */
    int64_t shift;
    int64_t *bucket; /* where each bucket's edges begin */
    int64_t *cursor; /* of each row */
    struct edge *edges;
};

struct csr {
    int64_t rows;
    const int64_t *rowptr; /* [rows + 1] */
    const int32_t *col;    /* [rowptr[rows]] */
};

/* Edges in rows, and edges as they are given. */
struct listed {
    int64_t rows;
    const int64_t *rowptr;      /* [rows + 1] */
    const int32_t *col;         /* [rowptr[rows]] */
    const int32_t *edge_id;     /* [rowptr[rows]], or NULL for their own order */
    const int64_t *source;      /* [rowptr[rows]] */
    const int64_t *destination; /* [rowptr[rows]] */
};

/* A square matrix, and the one in which every row has exactly one entry on the diagonal. */
struct loops {
    int64_t rows;
    const int64_t *rowptr; /* [rows + 1] */
    const int32_t *col;    /* [rowptr[rows]] */
    int64_t *out_rowptr;   /* [rows + 1] */
    int32_t *out_col;      /* [out_rowptr[rows]], or NULL */
};
