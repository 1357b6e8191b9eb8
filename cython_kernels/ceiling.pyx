# cython: language_level=3, boundscheck=False, wraparound=False
"""Ceilings of the machine, by the fields of `struct gather`."""
from cython.parallel cimport prange

include "record.pxi"
include "ceiling_fields.pxi"

cdef extern from "ceiling.h":
    ctypedef void kernel_fn(const void *task, int64_t begin, int64_t end) noexcept nogil
    ctypedef kernel_fn *kernel_table[3][2][5]
    kernel_fn *kernel_for(kernel_table table, int isa, int is_double, int64_t width) noexcept nogil
    kernel_table gather_kernels


def gather(int isa, **fields):
    """Add `share` lines on each thread."""
    cdef gather_task task
    cdef int thread
    cdef kernel_fn *kernel = kernel_for(gather_kernels, isa, False, 16)
    fill_gather(&task, fields)
    if task.share % 4:
        raise ValueError(f"gather: share is {task.share}, but must be a multiple of four")
    for thread in prange(<int>task.threads, nogil=True, num_threads=<int>task.threads, schedule="static", chunksize=1):
        kernel(&task, thread * task.share, (thread + 1) * task.share)
