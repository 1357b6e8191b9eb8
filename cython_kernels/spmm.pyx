# cython: language_level=3, boundscheck=False, wraparound=False
"""Sparse-dense products: addresses in, nothing out; `gnnbench.backends.isplib` has checked every argument."""

include "rows.pxi"

cdef extern from "spmm.h":
    struct spmm:
        const int64_t *rowptr
        const int32_t *col
        const void *value
        const void *x
        void *out
        int32_t *arg_out
        int64_t heads, width, value_stride
        int mean, min
    kernel_table spmm_sum_kernels

def sum(uintptr_t rowptr, uintptr_t col, uintptr_t value, uintptr_t x, uintptr_t out, int64_t rows, int64_t heads,
        int64_t width, int64_t value_stride, bint mean, bint is_double, int isa, int threads):
    cdef spmm task
    task.rowptr, task.col, task.value = <const int64_t *>rowptr, <const int32_t *>col, <const void *>value
    task.x, task.out = <const void *>x, <void *>out
    task.heads, task.width, task.value_stride, task.mean = heads, width, value_stride, mean
    with nogil:
        run_rows(kernel_for(spmm_sum_kernels, isa, is_double, width), &task, task.rowptr, rows, heads * width,
                 threads)
