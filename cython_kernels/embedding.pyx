# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sums of embeddings: addresses in; `gnnbench.backends.isplib` has checked every argument but categories,
which are checked as they are looked up."""

from cython.parallel cimport prange

include "record.pxi"

cdef extern from "embedding.h":
    ctypedef void kernel_fn(const void *task, int64_t begin, int64_t end) noexcept nogil
    ctypedef kernel_fn *longest_table[3][2]
    struct embedding:
        int64_t rows, columns, width
    longest_table embedding_sum_kernels, embedding_add_kernels


def sum(bint is_double, int isa, int threads, *fields):
    cdef embedding task
    fill(&task, sizeof(task), fields)
    run(embedding_sum_kernels[isa][is_double], &task, threads, task.rows, 1)


def add(bint is_double, int isa, int threads, *fields):
    cdef embedding task
    fill(&task, sizeof(task), fields)
    run(embedding_add_kernels[isa][is_double], &task, threads, task.width, 8 if is_double else 16)


cdef void run(kernel_fn *kernel, const embedding *task, int threads, int64_t size, int64_t step):
    # A piece holds whole multiples of `step`; small work is not worth a team.
    cdef int64_t steps = (size + step - 1) // step
    cdef int pieces = threads if task.rows * task.columns * task.width > 1 << 15 else 1, piece
    with nogil:
        for piece in prange(pieces, num_threads=pieces, schedule="static"):
            kernel(task, steps * piece // pieces * step, min(steps * (piece + 1) // pieces * step, size))
