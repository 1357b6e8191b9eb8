# cython: language_level=3, boundscheck=False, wraparound=False
"""FusedMM: addresses in, nothing out; `gnnbench.backends.isplib` has checked every argument."""

include "rows.pxi"

cdef extern from "fusedmm.h":
    struct fusedmm_task "fusedmm":
        const int64_t *rowptr
        int64_t rows, heads, width
    kernel_table fusedmm_kernels


def fusedmm(bint is_double, int isa, int threads, *fields):
    cdef fusedmm_task task
    fill(&task, sizeof(task), fields)
    with nogil:
        run_rows(kernel_for(fusedmm_kernels, isa, is_double, task.width), &task, task.rowptr, task.rows,
                 2 * task.heads * task.width, threads)
