# cython: language_level=3, boundscheck=False, wraparound=False
"""Kernels over edges: addresses in, nothing out; `gnnbench.backends.isplib` has checked every argument."""

include "rows.pxi"

cdef extern from "edge.h":
    struct sddmm_task "sddmm":
        const int64_t *rowptr
        const int32_t *col
        const void *a
        const void *b
        void *out
        int64_t heads, width, ahead
    struct softmax_task "softmax":
        const int64_t *rowptr
        const void *in_ "in"
        const void *grad
        void *out
        int64_t heads
    kernel_table sddmm_kernels, softmax_kernels, softmax_backward_kernels
    const int SOFTMAX_HEADS

MAX_HEADS = SOFTMAX_HEADS


def sddmm(uintptr_t rowptr, uintptr_t col, uintptr_t a, uintptr_t b, uintptr_t out, int64_t rows, int64_t heads,
          int64_t width, bint is_double, int isa, int64_t ahead, int threads):
    cdef sddmm_task task
    task.rowptr, task.col, task.heads, task.width = <const int64_t *>rowptr, <const int32_t *>col, heads, width
    task.a, task.b, task.out, task.ahead = <const void *>a, <const void *>b, <void *>out, ahead
    with nogil:
        run_team(kernel_for(sddmm_kernels, isa, is_double, width), &task, task.rowptr, rows, threads)


cdef int64_t per_row(const softmax_task *task, int64_t rows) noexcept nogil:
    # Scores of a row on average: vectors longer than that spend their time on lanes that stay empty.
    return task.rowptr[rows] * task.heads // max(rows, 1)


def softmax(uintptr_t rowptr, uintptr_t score, uintptr_t out, int64_t rows, int64_t heads, bint is_double, int isa,
            int threads):
    cdef softmax_task task
    task.rowptr, task.in_, task.out = <const int64_t *>rowptr, <const void *>score, <void *>out
    task.grad, task.heads = NULL, heads
    with nogil:
        run_rows(kernel_for(softmax_kernels, isa, is_double, per_row(&task, rows)), &task, task.rowptr, rows,
                 4 * heads, threads)


def softmax_backward(uintptr_t rowptr, uintptr_t alpha, uintptr_t grad, uintptr_t out, int64_t rows, int64_t heads,
                     bint is_double, int isa, int threads):
    cdef softmax_task task
    task.rowptr, task.in_, task.out = <const int64_t *>rowptr, <const void *>alpha, <void *>out
    task.grad, task.heads = <const void *>grad, heads
    with nogil:
        run_rows(kernel_for(softmax_backward_kernels, isa, is_double, per_row(&task, rows)), &task, task.rowptr, rows,
                 2 * heads, threads)
