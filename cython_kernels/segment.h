/* Reductions over runs of rows and their gradients, and rows added to others; where messages are streamed. */
#include <stdint.h>

enum { SUM, MEAN, MIN, MAX };

struct segment {
    int64_t rows, width, reduce;
    const int64_t *rowptr; /* [rows + 1], from 0 on */
    const void *x;         /* [rowptr[rows], width], or NULL where no gradient needs it */
    void *out;             /* [rows, width], or NULL as x */
    const void *grad_out;  /* [rows, width], or NULL in forward */
    void *grad_x;          /* [rowptr[rows], width], or NULL in forward */
};

struct gathered {
    int64_t rows, cols, width;
    const int64_t *rowptr;   /* [rows + 1], from 0 on */
    const int32_t *col;      /* [rowptr[rows]], each below cols */
    const void *source;      /* [cols, width], or NULL for zeros */
    const void *destination; /* [rows, width], or NULL likewise */
    void *out;               /* [rowptr[rows], width] */
};

struct added {
    int64_t rows, edges, width;
    int64_t parts;        /* of the rows, so that each is written by one thread */
    const int32_t *index; /* [edges], each below rows */
    const void *x;        /* [edges, width] */
    void *out;            /* [rows, width] */
};

#define TEMPLATE "segment.inc"
#include "isa.inc"
static kernel_table segment_kernels = KERNELS(segment);
static kernel_table segment_backward_kernels = KERNELS(segment_backward);
static kernel_table gathered_kernels = KERNELS(gathered);
static kernel_table added_kernels = KERNELS(added);
