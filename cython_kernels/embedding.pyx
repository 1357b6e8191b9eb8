# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sums of embeddings, by the fields of `struct embedding`; categories are checked as they are looked up."""

from cython.parallel cimport prange

include "record.pxi"
include "embedding_fields.pxi"

cdef extern from "embedding.h":
    ctypedef void kernel_fn(const void *task, int64_t begin, int64_t end) noexcept nogil
    ctypedef kernel_fn *longest_table[3][2]
    longest_table embedding_sum_kernels, embedding_add_kernels


def sum(int isa, int threads, **fields):
    cdef embedding_task task
    cdef bint is_double = fill_embedding(&task, fields)
    need("embedding", fields, ("table", "out"))
    run(embedding_sum_kernels[isa][is_double], &task, threads, task.rows, 1)


def add(int isa, int threads, **fields):
    cdef embedding_task task
    cdef bint is_double = fill_embedding(&task, fields)
    need("embedding", fields, ("grad_out", "grad_table"))
    run(embedding_add_kernels[isa][is_double], &task, threads, task.width, 8 if is_double else 16)


cdef void run(kernel_fn *kernel, const embedding_task *task, int threads, int64_t size, int64_t step):
    # A piece holds whole multiples of `step`; small work is not worth a team.
    cdef int64_t steps = (size + step - 1) // step
    cdef int pieces = threads if task.rows * task.columns * task.width > 1 << 15 else 1, piece
    with nogil:
        for piece in prange(pieces, num_threads=pieces, schedule="static"):
            kernel(task, steps * piece // pieces * step, min(steps * (piece + 1) // pieces * step, size))
