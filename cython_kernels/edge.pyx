# cython: language_level=3, boundscheck=False, wraparound=False
"""Kernels over edges: addresses in, nothing out; `gnnbench.backends.isplib` has checked every argument."""

include "rows.pxi"

cdef extern from "edge.h":
    struct sddmm_task "sddmm":
        const int64_t *rowptr
        int64_t rows, width
    struct softmax_task "softmax":
        const int64_t *rowptr
        int64_t rows, heads
    kernel_table sddmm_kernels, softmax_kernels, softmax_backward_kernels
    const int SOFTMAX_HEADS

MAX_HEADS = SOFTMAX_HEADS


def sddmm(bint is_double, int isa, int threads, *fields):
    cdef sddmm_task task
    fill(&task, sizeof(task), fields)
    with nogil:
        run_team(kernel_for(sddmm_kernels, isa, is_double, task.width), &task, task.rowptr, task.rows, threads)


def softmax(bint is_double, int isa, int threads, *fields):
    run_softmax(softmax_kernels, 4, is_double, isa, threads, fields)


def softmax_backward(bint is_double, int isa, int threads, *fields):
    run_softmax(softmax_backward_kernels, 2, is_double, isa, threads, fields)


cdef run_softmax(kernel_table table, int work, bint is_double, int isa, int threads, tuple fields):
    # Vectors longer than the scores of a row, on average, would spend their time on lanes that stay empty.
    cdef softmax_task task
    cdef int64_t per_row
    fill(&task, sizeof(task), fields)
    with nogil:
        per_row = task.rowptr[task.rows] * task.heads // max(task.rows, 1)
        run_rows(kernel_for(table, isa, is_double, per_row), &task, task.rowptr, task.rows, work * task.heads, threads)
