# cython: language_level=3, boundscheck=False, wraparound=False
"""Fused attention: addresses in, nothing out; `gnnbench.backends.isplib` has checked every argument."""

include "rows.pxi"
from libc.stdint cimport uint32_t

cdef extern from "attention.h":
    enum family:
        GAT_ "GAT"
        GATV2_ "GATV2"
        DOT_ "DOT"
    struct attention_task "attention":
        const int64_t *rowptr
        const int32_t *col
        const int32_t *perm
        const void *query
        const void *key
        const void *value
        const void *att
        void *out
        void *stats
        void *out_positive
        void *alpha_positive
        const void *grad_out
        void *grad
        void *node
        void *grad_query
        void *grad_key
        void *grad_value
        int64_t heads, width, channels, chunk
        double slope, scale
        int drops
        uint32_t low, high, threshold
    kernel_table forward_kernels[3]
    kernel_table terms_kernels
    kernel_table grad_query_kernels[3]
    kernel_table grad_key_kernels[3]

GAT, GATV2, DOT = GAT_, GATV2_, DOT_


cdef class Attention:
    """What the passes of one call share: its numbers and the tensors that all of them read."""
    cdef attention_task task
    cdef int family, is_double, isa

    def __init__(self, int family, uintptr_t query, uintptr_t key, uintptr_t value, uintptr_t att, int64_t heads,
                 int64_t width, int64_t channels, double slope, bint is_double, int isa):
        self.family, self.is_double, self.isa = family, is_double, isa
        self.task.query, self.task.key = <const void *>query, <const void *>key
        self.task.value, self.task.att = <const void *>value, <const void *>att
        self.task.heads, self.task.width, self.task.channels, self.task.slope = heads, width, channels, slope

    def drop(self, uint32_t threshold, double scale, uint32_t low, uint32_t high):
        self.task.drops, self.task.threshold, self.task.scale = 1, threshold, scale
        self.task.low, self.task.high = low, high

    def forward(self, uintptr_t rowptr, uintptr_t col, uintptr_t out, uintptr_t stats, uintptr_t out_positive,
                uintptr_t alpha_positive, int64_t rows, int64_t chunk, int threads):
        self.task.out, self.task.stats = <void *>out, <void *>stats
        self.task.out_positive, self.task.alpha_positive = <void *>out_positive, <void *>alpha_positive
        self.run(forward_kernels[self.family], rowptr, col, 0, rows, chunk, threads)

    def terms(self, uintptr_t rowptr, uintptr_t grad_out, uintptr_t out, uintptr_t stats, uintptr_t out_positive,
              uintptr_t alpha_positive, uintptr_t grad_query, uintptr_t grad, uintptr_t node, int64_t rows,
              int64_t chunk, int threads):
        self.task.grad_out, self.task.out, self.task.stats = <const void *>grad_out, <void *>out, <void *>stats
        self.task.out_positive, self.task.alpha_positive = <void *>out_positive, <void *>alpha_positive
        self.task.grad_query, self.task.grad, self.task.node = <void *>grad_query, <void *>grad, <void *>node
        self.run(terms_kernels, rowptr, 0, 0, rows, chunk, threads)

    def grad_query(self, uintptr_t rowptr, uintptr_t col, uintptr_t grad, uintptr_t node, uintptr_t grad_query,
                   int64_t rows, int64_t chunk, int threads):
        self.task.grad, self.task.node = <void *>grad, <void *>node
        self.task.grad_query = <void *>grad_query
        self.run(grad_query_kernels[self.family], rowptr, col, 0, rows, chunk, threads)

    def grad_key(self, uintptr_t rowptr, uintptr_t col, uintptr_t perm, uintptr_t grad, uintptr_t node,
                 uintptr_t grad_key, uintptr_t grad_value, int64_t rows, int64_t chunk, int threads):
        self.task.grad, self.task.node = <void *>grad, <void *>node
        self.task.grad_key, self.task.grad_value = <void *>grad_key, <void *>grad_value
        self.run(grad_key_kernels[self.family], rowptr, col, perm, rows, chunk, threads)

    cdef void run(self, kernel_table table, uintptr_t rowptr, uintptr_t col, uintptr_t perm, int64_t rows,
                  int64_t chunk, int threads):
        cdef attention_task *task = &self.task
        cdef int64_t width = task.channels if self.family == GAT_ else min(task.width, task.channels)
        cdef kernel_fn *kernel = kernel_for(table, self.isa, self.is_double, width)
        task.rowptr, task.col, task.perm = <const int64_t *>rowptr, <const int32_t *>col, <const int32_t *>perm
        task.chunk = chunk
        with nogil:
            run_team(kernel, task, task.rowptr, rows, threads)
