# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Linear layers, by the fields of `struct linear`.

Chunks of rows do not depend on the number of threads, nor does the order in which their gradients are added.
"""

from cython.parallel cimport prange

include "record.pxi"
include "linear_fields.pxi"

cdef extern from "linear.h":
    ctypedef void kernel_fn(const void *task, int64_t begin, int64_t end) noexcept nogil
    ctypedef kernel_fn *longest_table[3][2]
    longest_table linear_pack_kernels, linear_kernels, linear_chunk_kernels, linear_end_kernels


def panel(bint is_double, int isa):
    """Columns of a panel, as in linear.inc."""
    return (4 if isa == 2 else 2) * (16 << isa) // (8 if is_double else 4)


def forward(int isa, int threads, **fields):
    cdef linear_task task
    cdef bint is_double = fill_packed(&task, fields, isa)
    need("linear", fields, ("out",))
    with nogil:
        team(linear_pack_kernels[isa][is_double], &task, task.columns, threads)
        team(linear_kernels[isa][is_double], &task, task.rows, threads)


def backward(int isa, int threads, **fields):
    cdef linear_task task
    cdef bint is_double = fill_packed(&task, fields, isa)
    need("linear", fields, ("grad_out", "partial", "grad_weight", "grad_bias"))
    with nogil:
        team(linear_pack_kernels[isa][is_double], &task, task.columns, threads)
        team(linear_chunk_kernels[isa][is_double], &task, task.chunks, threads)
        team(linear_end_kernels[isa][is_double], &task, task.outs, threads)


cdef int fill_packed(linear_task *task, dict fields, int isa) except -1:
    cdef bint is_double = fill_linear(task, fields)
    cdef int64_t packed = task.ins if task.grad_out else task.outs, depth = task.outs if task.grad_out else task.ins
    if task.width != panel(is_double, isa) or task.columns * task.width < packed or task.depth != depth:
        raise ValueError(f"linear: panels {task.columns} x {task.depth + 1} x {task.width} do not hold the weight")
    return is_double


cdef void team(kernel_fn *kernel, const linear_task *task, int64_t size, int threads) noexcept nogil:
    # Several pieces per thread even out what their neighbours on the machine do.
    cdef int pieces = 8 * threads, piece
    if threads == 1:
        kernel(task, 0, size)
        return
    for piece in prange(pieces, num_threads=threads, schedule="dynamic", chunksize=1):
        kernel(task, size * piece // pieces, size * (piece + 1) // pieces)
