/* Sampled neighbourhoods: what `sample.pyx` reads and writes. */
#include <stdint.h>

#include "random.h"

/* A node stands at `position - base` in the batch; where its position is less than `base`, it is not there yet.
 * Positions are found by node, or through a hash table, of which at most half is taken: a slot of an earlier batch is
 * free. */
struct slot {
    int32_t node, position;
};

struct seeds {
    int64_t count, num_nodes, base, mask;
    const int64_t *seeds; /* [count] */
    int32_t *position;    /* [num_nodes]; or NULL, as one of both is */
    struct slot *table;   /* [mask + 1, 8], a power of two; or NULL */
    int32_t *node;        /* [count] */
};

struct count {
    int64_t count, num_nodes, num_edges, fanout, replace;
    const int64_t *rowptr; /* [num_nodes + 1] */
    const int32_t *node;   /* [count], those whose rows are sampled */
    int64_t *begin;        /* [count], of their rows */
    int64_t *degree;       /* [count] */
    int64_t *offset;       /* [count + 1], where their sampled edges begin; offset[0] is given */
};

struct draw {
    int64_t first, count, num_nodes, num_edges, words, fanout, replace, key;
    const int32_t *col;      /* [num_edges]; or NULL, as one of both is */
    const int64_t *wide_col; /* [num_edges]; or NULL */
    const int32_t *edge_id;  /* [num_edges]; or NULL where edges are named by their places */
    const int64_t *begin;    /* [count] */
    const int64_t *degree;   /* [count] */
    const int64_t *offset;   /* [count + 1] */
    uint64_t *seen;          /* [words], all zero: a bit for each edge of a row */
    int64_t *row;            /* [offset[count]]: nodes of the graph, which `relabel` turns into places */
    int64_t *out_col;        /* [offset[count]] */
    int64_t *edge;           /* [offset[count]] */
};

struct relabel {
    int64_t begin, end, count, num_nodes, base, mask, room;
    int64_t *row;       /* [end] */
    int32_t *position;  /* [num_nodes]; or NULL, as one of both is */
    struct slot *table; /* [mask + 1, 8]; or NULL */
    int32_t *node;      /* [room], one more than can be new at least */
};

struct compress {
    int64_t rows, cols, edges, most;
    const int64_t *row;     /* [edges], places of sources */
    const int64_t *place;   /* [edges], of destinations; ascending */
    int64_t *rowptr;        /* [rows + 1] */
    int32_t *col;           /* [edges] */
    int64_t *turned_rowptr; /* [cols + 1] */
    int32_t *turned_col;    /* [edges] */
    int32_t *perm;          /* [edges]: edge e of the transpose is edge perm[e] here */
    int64_t *cursor;        /* [most], of rows or cols, whichever are more */
};
