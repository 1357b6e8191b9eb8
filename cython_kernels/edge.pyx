# cython: language_level=3, boundscheck=False, wraparound=False
"""Kernels over edges, by the fields of `struct sddmm` and `struct softmax`."""

include "record.pxi"
include "rows.pxi"
include "edge_fields.pxi"

cdef extern from "edge.h":
    kernel_table sddmm_kernels, softmax_kernels, softmax_backward_kernels
    const int SOFTMAX_HEADS

MAX_HEADS = SOFTMAX_HEADS


def sddmm(int isa, int threads, **fields):
    cdef sddmm_task task
    cdef bint is_double = fill_sddmm(&task, fields)
    with nogil:
        run_team(kernel_for(sddmm_kernels, isa, is_double, task.width), &task, task.rowptr, task.rows, threads)


def softmax(int isa, int threads, **fields):
    run_softmax(softmax_kernels, 4, isa, threads, fields)


def softmax_backward(int isa, int threads, **fields):
    need("softmax", fields, ("grad",))
    run_softmax(softmax_backward_kernels, 2, isa, threads, fields)


cdef run_softmax(kernel_table table, int work, int isa, int threads, dict fields):
    # Vectors longer than the scores of a row, on average, would spend their time on lanes that stay empty.
    cdef softmax_task task
    cdef bint is_double = fill_softmax(&task, fields)
    cdef int64_t per_row
    if task.heads > SOFTMAX_HEADS:
        raise ValueError(f"softmax: heads is {task.heads}, but must be at most {SOFTMAX_HEADS}")
    with nogil:
        per_row = task.rowptr[task.rows] * task.heads // max(task.rows, 1)
        run_rows(kernel_for(table, isa, is_double, per_row), &task, task.rowptr, task.rows, work * task.heads, threads)
