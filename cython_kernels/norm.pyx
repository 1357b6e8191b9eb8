# cython: language_level=3, boundscheck=False, wraparound=False
"""Batch norm with the ReLU after it, by the fields of `struct norm`.

Chunks of rows do not depend on the number of threads, nor do the sums of their partial results, in order.
"""

from cython.parallel cimport prange

include "record.pxi"
include "norm_fields.pxi"

cdef extern from "norm.h":
    ctypedef void kernel_fn(const void *task, int64_t begin, int64_t end) noexcept nogil
    kernel_fn *moments_kernels[3][2]
    kernel_fn *moments_end_kernels[3][2]
    kernel_fn *normalise_kernels[3][2]
    kernel_fn *scales_kernels[3][2]
    kernel_fn *grad_sums_kernels[3][2]
    kernel_fn *grad_sums_end_kernels[3][2]
    kernel_fn *grad_rows_kernels[3][2]


cdef void run(kernel_fn *sums, kernel_fn *end, kernel_fn *rows, norm_task *task, int threads) noexcept nogil:
    cdef int64_t chunk, chunks = task.chunks
    if threads == 1:
        sums(task, 0, chunks)
        end(task, 0, task.width)
        rows(task, 0, chunks)
        return
    for chunk in prange(chunks, num_threads=threads, schedule="static"):
        sums(task, chunk, chunk + 1)
    end(task, 0, task.width)
    for chunk in prange(chunks, num_threads=threads, schedule="static"):
        rows(task, chunk, chunk + 1)


def forward(int isa, int threads, **fields):
    cdef norm_task task
    cdef bint is_double = fill_norm(&task, fields)
    with nogil:
        run(moments_kernels[isa][is_double], moments_end_kernels[isa][is_double],
            normalise_kernels[isa][is_double], &task, threads)


def normalise(int isa, int threads, **fields):
    """Rows by moments that are given."""
    cdef norm_task task
    cdef bint is_double = fill_norm(&task, fields)
    cdef kernel_fn *rows = normalise_kernels[isa][is_double]
    cdef int64_t chunk
    with nogil:
        scales_kernels[isa][is_double](&task, 0, task.width)
        for chunk in prange(task.chunks, num_threads=threads, schedule="static"):
            rows(&task, chunk, chunk + 1)


def backward(int isa, int threads, **fields):
    cdef norm_task task
    cdef bint is_double = fill_norm(&task, fields)
    need("norm", fields, ("grad_out", "grad_weight", "grad_bias"))
    with nogil:
        scales_kernels[isa][is_double](&task, 0, task.width)
        run(grad_sums_kernels[isa][is_double], grad_sums_end_kernels[isa][is_double],
            grad_rows_kernels[isa][is_double], &task, threads)
