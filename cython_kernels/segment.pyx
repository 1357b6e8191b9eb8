# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reductions over runs of rows, by the fields of `struct segment`, `gathered` and `added`."""

include "record.pxi"
include "rows.pxi"
include "segment_fields.pxi"

cdef extern from "segment.h":
    kernel_table segment_kernels, segment_backward_kernels, gathered_kernels, added_kernels

REDUCTIONS = ("sum", "mean", "min", "max")  # by the numbers that `reduce` has


def forward(int isa, int threads, **fields):
    cdef segment_task task
    cdef bint is_double = fill_segment(&task, fields)
    need("segment", fields, ("x", "out"))
    if task.width:
        with nogil:
            run_rows(kernel_for(segment_kernels, isa, is_double, task.width), &task, task.rowptr, task.rows, task.width,
                     threads)


def backward(int isa, int threads, **fields):
    cdef segment_task task
    cdef bint is_double = fill_segment(&task, fields)
    need("segment", fields, ("grad_out", "grad_x") if task.reduce < 2 else ("x", "out", "grad_out", "grad_x"))
    if task.width:
        with nogil:
            run_rows(kernel_for(segment_backward_kernels, isa, is_double, task.width), &task, task.rowptr, task.rows,
                     task.width, threads)


def gather(int isa, int threads, **fields):
    cdef gathered_task task
    cdef bint is_double = fill_gathered(&task, fields)
    if task.width:
        with nogil:
            run_rows(kernel_for(gathered_kernels, isa, is_double, task.width), &task, task.rowptr, task.rows,
                     task.width, threads)


def add(int isa, int threads, **fields):
    cdef added_task task
    cdef bint is_double = fill_added(&task, fields)
    cdef int part
    cdef kernel_fn *kernel = kernel_for(added_kernels, isa, is_double, task.width)
    if task.edges * task.width < 1 << 15:
        threads = 1  # small work is not worth a team
    task.parts = threads
    with nogil:
        for part in prange(threads, num_threads=threads, schedule="static"):
            kernel(&task, part, part + 1)
