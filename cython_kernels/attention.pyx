# cython: language_level=3, boundscheck=False, wraparound=False
"""Fused attention: addresses in, nothing out; `gnnbench.backends.isplib` has checked every argument."""

include "rows.pxi"
from libc.stdint cimport uint32_t

cdef extern from "attention.h":
    struct attention_task "attention":
        const int64_t *rowptr
        const void *query
        const void *grad_out
        void *out
        void *grad
        int64_t chunk
        double slope, scale
        int drops
        uint32_t low, high, threshold, first
    struct passes:
        const char *family
        kernel_table forward, grad_query, grad_key
    passes *families
    const int family_count
    kernel_table terms_kernels

FAMILIES = [families[k].family.decode() for k in range(family_count)]


cdef class Attention:
    """What the passes of one call share: its numbers and the tensors that all of them read."""
    cdef attention_task task
    cdef passes *passes
    cdef int is_double, isa
    cdef int64_t shortest

    def __init__(self, str family, *fields):
        """`query` to `channels`, the slope of the leaky ReLU, the fewest elements that a row of any tensor has, whether
        numbers are doubles, and the instruction set."""
        self.passes = &families[<int>FAMILIES.index(family)]
        fill(&self.task.query, 7 * sizeof(int64_t), fields[:7])
        self.task.slope, self.shortest, self.is_double, self.isa = fields[7:]

    def drop(self, uint32_t threshold, double scale, uint32_t first, uint32_t low, uint32_t high):
        self.task.drops, self.task.threshold, self.task.scale = 1, threshold, scale
        self.task.first, self.task.low, self.task.high = first, low, high

    # Each pass takes the graph, a run of fields of the task, the number of rows, edges at a time and threads.

    def forward(self, *fields):
        """The graph, and `out` to `alpha_positive`."""
        self.run(self.passes.forward, fields, 2, &self.task.out, 4)

    def terms(self, *fields):
        """The graph's rows, and `grad_out` to `node`."""
        self.run(terms_kernels, fields, 1, &self.task.grad_out, 8)

    def grad_query(self, *fields):
        """The graph, and `grad` to `grad_mine`."""
        self.run(self.passes.grad_query, fields, 2, &self.task.grad, 3)

    def grad_key(self, *fields):
        """The transpose and its edges' own numbers, and `grad` to `grad_value`."""
        self.run(self.passes.grad_key, fields, 3, &self.task.grad, 4)

    cdef run(self, kernel_table table, tuple fields, int graph, void *first, int count):
        cdef attention_task *task = &self.task
        cdef kernel_fn *kernel = kernel_for(table, self.isa, self.is_double, self.shortest)
        cdef Py_ssize_t given = len(fields) - 3
        cdef int64_t rows
        cdef int threads
        cdef tuple walk = fields[given:]
        rows, task.chunk, threads = walk
        fill(&task.rowptr, 3 * sizeof(int64_t), fields[:graph])
        fill(first, count * sizeof(int64_t), fields[graph:given])
        with nogil:
            run_team(kernel, task, task.rowptr, rows, threads)
