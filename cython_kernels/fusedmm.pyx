# cython: language_level=3, boundscheck=False, wraparound=False
"""FusedMM, by the fields of `struct fusedmm`."""

include "record.pxi"
include "rows.pxi"
include "fusedmm_fields.pxi"

cdef extern from "fusedmm.h":
    kernel_table fusedmm_kernels


def fusedmm(int isa, int threads, **fields):
    cdef fusedmm_task task
    cdef bint is_double = fill_fusedmm(&task, fields)
    with nogil:
        run_rows(kernel_for(fusedmm_kernels, isa, is_double, task.width), &task, task.rowptr, task.rows,
                 2 * task.heads * task.width, threads)
