# cython: language_level=3, boundscheck=False, wraparound=False
"""Ceilings of the machine: addresses in, nothing out; `gnnbench.backends.isplib` has checked every argument."""
from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t, uintptr_t

cdef extern from "ceiling.h":
    ctypedef void kernel_fn(const void *task, int64_t begin, int64_t end) noexcept nogil
    ctypedef kernel_fn *kernel_table[3][2][5]
    kernel_fn *kernel_for(kernel_table table, int isa, int is_double, int64_t width) noexcept nogil
    struct gather_task "gather":
        const char *table
        const int32_t *line
        char *sums
        int64_t share
    kernel_table gather_kernels


def gather(uintptr_t table, uintptr_t line, uintptr_t sums, int64_t share, int isa, int threads):
    """Add `share` lines on each thread."""
    cdef gather_task task
    cdef int thread
    cdef kernel_fn *kernel = kernel_for(gather_kernels, isa, False, 16)
    task.table, task.line, task.sums, task.share = <const char *>table, <const int32_t *>line, <char *>sums, share
    for thread in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        kernel(&task, thread * share, (thread + 1) * share)
