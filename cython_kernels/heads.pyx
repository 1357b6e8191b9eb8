# cython: language_level=3, boundscheck=False, wraparound=False
"""Scores of heads, by the fields of `struct heads`; chunks of rows do not depend on the number of threads."""

from cython.parallel cimport prange

include "record.pxi"
include "heads_fields.pxi"

cdef extern from "heads.h":
    ctypedef void kernel_fn(const void *task, int64_t begin, int64_t end) noexcept nogil
    ctypedef kernel_fn *kernel_table[3][2][5]
    kernel_fn *kernel_for(kernel_table table, int isa, int is_double, int64_t width) noexcept nogil
    kernel_table heads_kernels, heads_backward_kernels, heads_end_kernels


cdef void run(kernel_fn *kernel, const heads_task *task, int threads) noexcept nogil:
    cdef int64_t chunk
    if threads == 1 or task.rows * task.heads * task.width < 1 << 15:  # small work is not worth a team
        kernel(task, 0, task.chunks)
    else:
        for chunk in prange(task.chunks, num_threads=threads, schedule="static"):
            kernel(task, chunk, chunk + 1)


def forward(int isa, int threads, **fields):
    cdef heads_task task
    cdef bint is_double = fill_heads(&task, fields)
    need("heads", fields, ("out",))
    with nogil:
        run(kernel_for(heads_kernels, isa, is_double, task.width & -task.width), &task, threads)


def backward(int isa, int threads, **fields):
    cdef heads_task task
    cdef bint is_double = fill_heads(&task, fields)
    need("heads", fields, ("grad_out", "grad_x", "partial", "grad_att"))
    with nogil:
        run(kernel_for(heads_backward_kernels, isa, is_double, task.width & -task.width), &task, threads)
        kernel_for(heads_end_kernels, isa, is_double, 1)(&task, 0, task.count * task.heads * task.width)
