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
        const void *query
        int64_t width, channels
        const void *grad_out
        void *out
        void *grad
        int64_t chunk
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

    def __init__(self, int family, *fields):
        """`query` to `channels`, the slope of the leaky ReLU, whether numbers are doubles, and the instruction set."""
        self.family = family
        fill(&self.task.query, 7 * sizeof(int64_t), fields[:7])
        self.task.slope, self.is_double, self.isa = fields[7:]

    def drop(self, uint32_t threshold, double scale, uint32_t low, uint32_t high):
        self.task.drops, self.task.threshold, self.task.scale = 1, threshold, scale
        self.task.low, self.task.high = low, high

    # Each pass takes the graph, a run of fields of the task, the number of rows, edges at a time and threads.

    def forward(self, *fields):
        """The graph, and `out` to `alpha_positive`."""
        self.run(forward_kernels[self.family], fields, 2, &self.task.out, 4)

    def terms(self, *fields):
        """The graph's rows, and `grad_out` to `node`."""
        self.run(terms_kernels, fields, 1, &self.task.grad_out, 8)

    def grad_query(self, *fields):
        """The graph, and `grad` to `grad_mine`."""
        self.run(grad_query_kernels[self.family], fields, 2, &self.task.grad, 3)

    def grad_key(self, *fields):
        """The transpose and its edges' own numbers, and `grad` to `grad_value`."""
        self.run(grad_key_kernels[self.family], fields, 3, &self.task.grad, 4)

    cdef run(self, kernel_table table, tuple fields, int graph, void *first, int count):
        cdef attention_task *task = &self.task
        cdef int64_t width = task.channels if self.family == GAT_ else min(task.width, task.channels)
        cdef kernel_fn *kernel = kernel_for(table, self.isa, self.is_double, width)
        cdef Py_ssize_t given = len(fields) - 3
        cdef int64_t rows
        cdef int threads
        cdef tuple walk = fields[given:]
        rows, task.chunk, threads = walk
        fill(&task.rowptr, 3 * sizeof(int64_t), fields[:graph])
        fill(first, count * sizeof(int64_t), fields[graph:given])
        with nogil:
            run_team(kernel, task, task.rowptr, rows, threads)
