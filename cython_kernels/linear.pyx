# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Linear layers, by the fields of `struct linear`.

Chunks of rows do not depend on the number of threads, nor does the order in which their gradients are added.
"""

include "record.pxi"
include "linear_fields.pxi"
include "linear.pxi"


def forward(int isa, int threads, **fields):
    cdef linear_task task
    cdef bint is_double = fill_packed(&task, fields, isa, False)
    need("linear", fields, ("out",))
    with nogil:
        team(chosen(&linear_pack, isa, is_double), &task, task.columns, threads)
        team(chosen(&linear_kernel, isa, is_double), &task, blocks(&task) if isa == TILES else task.rows, threads)


def backward(int isa, int threads, **fields):
    cdef linear_task task
    cdef bint is_double = fill_packed(&task, fields, isa, True)
    need("linear", fields, ("grad_out", "partial", "grad_weight", "grad_bias"))
    with nogil:
        team(chosen(&linear_pack, isa, is_double), &task, task.columns, threads)
        team(chosen(&linear_chunk, isa, is_double), &task, task.chunks, threads)
        team(chosen(&linear_end, isa, is_double), &task, task.outs, threads)
