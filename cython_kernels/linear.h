/* Products of many rows with a small matrix: a linear layer, and its gradients in one pass over the rows. */
#ifndef GNNBENCH_LINEAR_H
#define GNNBENCH_LINEAR_H

#include <float.h>
#include <stdint.h>
#include <string.h>

struct linear {
    int64_t rows, ins, outs, chunks;
    int64_t slices;                /* of the work on a chunk, each with its share of the outputs */
    const void *x;                 /* [rows, ins] */
    const void *weight;            /* [outs, ins] */
    const void *bias;              /* [outs], or NULL */
    void *out;                     /* [rows, outs], or NULL in backward */
    const void *grad_out;          /* [rows, outs], or NULL for the layer itself */
    void *grad_x;                  /* [rows, ins], or NULL where no one needs it */
    void *grad_weight;             /* [outs, ins], or NULL */
    void *grad_bias;               /* [outs], or NULL */
    int64_t columns, depth, width; /* panels of the matrix, their rows, and numbers of a row */
    void *panels;                  /* the matrix: columns x depth x width */
    void *partial; /* of each chunk, gradients of weight and bias: chunks x outs x (columns x width + 1) */
};

#ifndef TEMPLATE /* of kernels that call these */
#define TEMPLATE "linear.inc"
#endif
#include "isa.inc"

#ifdef HAVE_AMX
#ifdef __clang__
#pragma clang attribute push(                                                                       \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16,fma"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16,fma")
#endif
#include "linear_tiles.inc"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#define TABLE(name) {LONGEST(linear_##name), linear_tiles_##name}
#else
#define TABLE(name) {LONGEST(linear_##name), NULL}
#endif

/* A kernel by vectors, and by tiles. */
typedef struct {
    longest_table by_vectors;
    kernel_fn *by_tiles;
} products;
static products linear_pack = TABLE(pack), linear_kernel = TABLE(rows), linear_chunk = TABLE(chunk),
                linear_end = TABLE(end);
#endif
