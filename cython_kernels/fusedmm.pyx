# cython: language_level=3, boundscheck=False, wraparound=False
"""FusedMM: addresses in, nothing out; `gnnbench.backends.isplib` has checked every argument."""

include "rows.pxi"

cdef extern from "fusedmm.h":
    struct fusedmm_task "fusedmm":
        const int64_t *rowptr
        const int32_t *col
        const void *mine
        const void *theirs
        const void *my_grad
        const void *their_grad
        void *out
        int64_t heads, width
        int fn
    kernel_table fusedmm_kernels


def fusedmm(uintptr_t rowptr, uintptr_t col, uintptr_t mine, uintptr_t theirs, uintptr_t my_grad,
            uintptr_t their_grad, uintptr_t out, int64_t rows, int64_t heads, int64_t width, int fn, bint is_double,
            int isa, int threads):
    cdef fusedmm_task task
    task.rowptr, task.col, task.out = <const int64_t *>rowptr, <const int32_t *>col, <void *>out
    task.mine, task.theirs = <const void *>mine, <const void *>theirs
    task.my_grad, task.their_grad = <const void *>my_grad, <const void *>their_grad
    task.heads, task.width, task.fn = heads, width, fn
    with nogil:
        run_rows(kernel_for(fusedmm_kernels, isa, is_double, width), &task, task.rowptr, rows, 2 * heads * width,
                 threads)
