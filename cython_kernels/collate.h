/* Slices of many graphs side by side: what `collate.pyx` reads and writes. */
#include <stdint.h>

struct starts {
    int64_t count, graphs;
    const int64_t *ptr; /* [graphs + 1] */
    const int64_t *ids; /* [count] */
    int64_t *out;       /* [count + 1] */
};

struct take {
    int64_t count, graphs, row_bytes;
    const int64_t *ptr;    /* [graphs + 1] */
    const int64_t *ids;    /* [count] */
    const int64_t *starts; /* [count + 1] */
    const char *values;    /* [ptr[graphs] * row_bytes] */
    char *out;             /* [starts[count] * row_bytes] */
};

struct edges {
    int64_t count, graphs, num_edges, out_edges;
    const int64_t *edge_ptr;    /* [graphs + 1] */
    const int64_t *ids;         /* [count] */
    const int64_t *starts;      /* [count + 1], of nodes in the batch */
    const int64_t *edge_starts; /* [count + 1] */
    const int32_t *edge_index;  /* [2, num_edges] */
    int64_t *out;               /* [2, out_edges] */
};

/* Of all graphs, those of a batch, and the batch; a transpose is NULL where none is wanted. */
struct rows {
    int64_t count, graphs;
    const int64_t *graph_ptr;         /* [graphs + 1] */
    const int64_t *edge_ptr;          /* [graphs + 1] */
    const int64_t *rowptr;            /* [graph_ptr[graphs] + 1] */
    const int32_t *col;               /* [edge_ptr[graphs]] */
    const int32_t *edge_id;           /* [edge_ptr[graphs]] */
    const int64_t *transposed_rowptr; /* [graph_ptr[graphs] + 1], or NULL */
    const int32_t *transposed_col;    /* [edge_ptr[graphs]], or NULL */
    const int64_t *ids;               /* [count] */
    const int64_t *starts;            /* [count + 1] */
    const int64_t *edge_starts;       /* [count + 1] */
    int64_t *out_rowptr;              /* [starts[count] + 1] */
    int32_t *out_col;                 /* [edge_starts[count]] */
    int32_t *out_edge_id;             /* [edge_starts[count]] */
    int64_t *out_transposed_rowptr;   /* [starts[count] + 1], or NULL */
    int32_t *out_transposed_col;      /* [edge_starts[count]], or NULL */
};
