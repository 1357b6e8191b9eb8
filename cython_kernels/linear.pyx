# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Linear layers, by the fields of `struct linear`.

Chunks of rows do not depend on the number of threads, nor does the order in which their gradients are added.
"""

include "record.pxi"
include "linear_fields.pxi"
include "linear.pxi"

cdef enum:
    SLICES = 2  # of all chunks for each thread, at least


def forward(int isa, int threads, **fields):
    cdef linear_task task
    cdef bint is_double = fill_layer(&task, fields, isa, False)
    cdef Memory memory
    need("linear", fields, ("out",))
    memory = taken(place(&task, is_double, NULL))
    place(&task, is_double, memory.first)
    with nogil:
        team(chosen(&linear_pack, isa, is_double), &task, task.columns, threads)
        if isa == TILES:
            team(linear_kernel.by_tiles, &task, blocks(&task), threads)
        else:
            team(linear_kernel.by_vectors[isa][is_double], &task, task.rows, threads, ROWS)
    give(memory)


def backward(int isa, int threads, **fields):
    cdef linear_task task
    cdef bint is_double = fill_layer(&task, fields, isa, True)
    cdef Memory memory
    need("linear", fields, ("grad_out", "grad_weight", "grad_bias"))
    if isa != TILES:
        task.slices = (SLICES * threads + task.chunks - 1) // task.chunks
    memory = taken(place(&task, is_double, NULL))
    place(&task, is_double, memory.first)
    with nogil:
        team(chosen(&linear_pack, isa, is_double), &task, task.columns, threads)
        team(chosen(&linear_chunk, isa, is_double), &task, task.chunks * task.slices, threads)
        team(chosen(&linear_end, isa, is_double), &task, task.outs, threads)
    give(memory)
