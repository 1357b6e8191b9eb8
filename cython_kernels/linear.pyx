# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Linear layers: addresses in, nothing out; `gnnbench.backends.isplib` has checked every argument.

Chunks of rows do not depend on the number of threads, nor does the order in which their gradients are added.
"""

from cython.parallel cimport prange

include "record.pxi"

cdef extern from "linear.h":
    ctypedef void kernel_fn(const void *task, int64_t begin, int64_t end) noexcept nogil
    ctypedef kernel_fn *longest_table[3][2]
    struct linear_task "linear":
        int64_t rows, ins, outs, chunks
    longest_table linear_pack_kernels, linear_kernels, linear_chunk_kernels, linear_end_kernels


def panel(bint is_double, int isa):
    """Columns of a panel, as in linear.inc."""
    return (4 if isa == 2 else 2) * (16 << isa) // (8 if is_double else 4)


def forward(bint is_double, int isa, int threads, *fields):
    cdef linear_task task
    cdef int64_t columns = panel(is_double, isa)
    fill(&task, sizeof(task), fields)
    with nogil:
        linear_pack_kernels[isa][is_double](&task, 0, (task.outs + columns - 1) // columns)
        team(linear_kernels[isa][is_double], &task, task.rows, threads)


def backward(bint is_double, int isa, int threads, *fields):
    cdef linear_task task
    cdef int64_t columns = panel(is_double, isa)
    fill(&task, sizeof(task), fields)
    with nogil:
        linear_pack_kernels[isa][is_double](&task, 0, (task.ins + columns - 1) // columns)
        team(linear_chunk_kernels[isa][is_double], &task, task.chunks, threads)
        team(linear_end_kernels[isa][is_double], &task, task.outs, threads)


cdef void team(kernel_fn *kernel, const linear_task *task, int64_t size, int threads) noexcept nogil:
    # Several pieces per thread even out what their neighbours on the machine do.
    cdef int pieces = 8 * threads, piece
    if threads == 1:
        kernel(task, 0, size)
        return
    for piece in prange(pieces, num_threads=threads, schedule="dynamic", chunksize=1):
        kernel(task, size * piece // pieces, size * (piece + 1) // pieces)
