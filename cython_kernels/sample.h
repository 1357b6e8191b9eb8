/* Sampled neighbourhoods: what `sample.pyx` reads and writes. */
#include <stdint.h>

#include "random.h"

/* A node stands at `position - base` in the batch; where its position is less than `base`, it is not there yet.
 * Positions are found by node, or through a hash table, of which at most half is taken: a slot of an earlier batch is
 * free. Where every seed has a tree of its own, a node stands in the batch once for each tree that has it. */
struct slot {
    int32_t node, position;
};

struct seeds {
    int64_t count, num_nodes, base, mask;
    const int64_t *seeds; /* [count] */
    const int32_t *tree;  /* [count]; or NULL */
    int32_t *position;    /* [num_nodes]; or NULL, as one of both is */
    struct slot *table;   /* [mask + 1, 8], a power of two; or NULL */
    int32_t *node;        /* [count] */
};

struct places {
    int64_t count, num_nodes, base, mask;
    const int32_t *node; /* [count] */
    int32_t *position;   /* [num_nodes]; or NULL, as one of both is */
    struct slot *table;  /* [mask + 1, 8], a power of two; or NULL */
    int64_t *place;      /* [count], -1 of a node that is not there */
};

struct count {
    int64_t count, num_rows, num_edges, replace, trees, last;
    const int64_t *rowptr; /* [num_rows + 1] */
    const int32_t *node;   /* [count], those whose rows are sampled */
    const int64_t *fanout; /* [count], edges to draw of each; -1: all */
    const int64_t *time;   /* [num_edges], ascending in each row; or NULL */
    const int64_t *limit;  /* [trees], the latest time of each; or NULL, as `time` is */
    const int32_t *tree;   /* [count]; or NULL */
    int64_t *begin;        /* [count], of their rows */
    int64_t *degree;       /* [count] */
    int64_t *offset;       /* [count + 1], where their sampled edges begin; offset[0] is given */
};

struct draw {
    int64_t first, count, num_nodes, num_edges, words, most, replace, key;
    const int64_t *fanout;   /* [count] */
    const int64_t *stream;   /* [count], numbers of the streams that random numbers are of */
    const int32_t *col;      /* [num_edges]; or NULL, as one of both is */
    const int64_t *wide_col; /* [num_edges]; or NULL */
    const int32_t *edge_id;  /* [num_edges]; or NULL where edges are named by their places */
    const int64_t *begin;    /* [count] */
    const int64_t *degree;   /* [count] */
    const int64_t *offset;   /* [count + 1] */
    const double *weight;    /* [num_edges], none negative; or NULL */
    double *scratch;         /* [most], for each edge of a row; or NULL, as `weight` is */
    uint64_t *seen;          /* [words], all zero: a bit for each edge of a row */
    int64_t *row;            /* [offset[count]]: nodes of the graph, which `relabel` turns into places */
    int64_t *out_col;        /* [offset[count]] */
    int64_t *edge;           /* [offset[count]] */
};

struct relabel {
    int64_t begin, end, count, num_nodes, base, mask, room, rows;
    int64_t *row;            /* [end] */
    const int64_t *out_col;  /* [end] */
    const int32_t *row_tree; /* [rows], of the nodes that `out_col` has places of; or NULL */
    int32_t *tree;           /* [room]; or NULL, as `row_tree` is */
    int32_t *position;       /* [num_nodes]; or NULL, as one of both is */
    struct slot *table;      /* [mask + 1, 8]; or NULL */
    int32_t *node;           /* [room], one more than can be new at least */
};

struct induce {
    int64_t count, edges, num_rows, num_nodes, num_edges, base, mask;
    const int64_t *rowptr;   /* [num_rows + 1] */
    const int32_t *col;      /* [num_edges]; or NULL, as one of both is */
    const int64_t *wide_col; /* [num_edges]; or NULL */
    const int32_t *edge_id;  /* [num_edges]; or NULL */
    const int32_t *node;     /* [count], whose in-edges from nodes of the batch are taken */
    int32_t *position;       /* [num_nodes]; or NULL, as one of both is */
    struct slot *table;      /* [mask + 1, 8]; or NULL */
    int64_t *row;            /* [edges]; or NULL, to count them */
    int64_t *out_col;        /* [edges]; or NULL */
    int64_t *edge;           /* [edges]; or NULL */
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
