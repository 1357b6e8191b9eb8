# cython: language_level=3, boundscheck=False, wraparound=False
"""Perceptrons, by the fields of `struct perceptron`; chunks of rows do not depend on the number of threads."""

from cython.parallel cimport prange

include "record.pxi"
include "perceptron_fields.pxi"

cdef extern from "perceptron.h":
    ctypedef void kernel_fn(const void *task, int64_t begin, int64_t end) noexcept nogil
    kernel_fn *perceptron_kernels[3][2]
    kernel_fn *perceptron_backward_kernels[3][2]


cdef void run(kernel_fn *kernel, const perceptron_task *task, int threads) noexcept nogil:
    cdef int64_t chunk
    for chunk in prange(task.chunks, num_threads=threads, schedule="dynamic"):
        kernel(task, chunk, chunk + 1)


cdef int check(perceptron_task *task) except -1:
    """Refuse rows of weights that are no whole vectors, or more inputs than are summed on the stack."""
    if task.width % 16 or not 0 < task.ins <= 64 or task.chunks < 1:
        raise ValueError(f"perceptron: {task.ins} inputs, {task.width} numbers and {task.chunks} chunks do not fit")
    return 0


def forward(int isa, int threads, **fields):
    cdef perceptron_task task
    cdef bint is_double = fill_perceptron(&task, fields)
    need("perceptron", fields, ("out",))
    check(&task)
    with nogil:
        run(perceptron_kernels[isa][is_double], &task, threads)


def backward(int isa, int threads, **fields):
    cdef perceptron_task task
    cdef bint is_double = fill_perceptron(&task, fields)
    need("perceptron", fields, ("grad_out", "grad_x", "partial"))
    check(&task)
    with nogil:
        run(perceptron_backward_kernels[isa][is_double], &task, threads)
