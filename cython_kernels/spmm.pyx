# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
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
        int64_t heads, width
        int mean, min
    kernel_table spmm_sum_kernels, spmm_extremum_kernels

ctypedef fused real:
    float
    double


def sum(uintptr_t rowptr, uintptr_t col, uintptr_t value, uintptr_t x, uintptr_t out, int64_t rows, int64_t heads,
        int64_t width, bint mean, bint is_double, int isa, int threads):
    cdef spmm task
    task.rowptr, task.col, task.value = <const int64_t *>rowptr, <const int32_t *>col, <const void *>value
    task.x, task.out, task.heads, task.width, task.mean = <const void *>x, <void *>out, heads, width, mean
    with nogil:
        run_rows(kernel_for(spmm_sum_kernels, isa, is_double, width), &task, task.rowptr, rows, heads * width,
                 threads)


def extremum(uintptr_t rowptr, uintptr_t col, uintptr_t value, uintptr_t x, uintptr_t out, uintptr_t arg_out,
             int64_t rows, int64_t width, bint is_min, bint is_double, int isa, int threads):
    cdef spmm task
    task.rowptr, task.col, task.value = <const int64_t *>rowptr, <const int32_t *>col, <const void *>value
    task.x, task.out, task.arg_out = <const void *>x, <void *>out, <int32_t *>arg_out
    task.heads, task.width, task.min = 1, width, is_min
    with nogil:
        run_rows(kernel_for(spmm_extremum_kernels, isa, is_double, width), &task, task.rowptr, rows, width, threads)


def extremum_backward(uintptr_t col, uintptr_t value, uintptr_t arg_out, uintptr_t grad_out, uintptr_t grad_x,
                      int64_t rows, int64_t width, bint is_double, int threads):
    # A piece owns whole cache lines of columns, so that no two threads add to the same place.
    cdef int64_t pieces = max(1, min(threads, width // 16)) if rows * width > 1 << 14 else 1, piece
    with nogil:
        for piece in prange(pieces, num_threads=<int>pieces, schedule="static"):
            if is_double:
                scatter(<const int32_t *>col, <const double *>value, <const int32_t *>arg_out,
                        <const double *>grad_out, <double *>grad_x, rows, width, width * piece / pieces,
                        width * (piece + 1) / pieces)
            else:
                scatter(<const int32_t *>col, <const float *>value, <const int32_t *>arg_out,
                        <const float *>grad_out, <float *>grad_x, rows, width, width * piece / pieces,
                        width * (piece + 1) / pieces)


cdef void scatter(const int32_t *col, const real *value, const int32_t *arg_out, const real *grad_out, real *grad_x,
                  int64_t rows, int64_t width, int64_t begin, int64_t end) noexcept nogil:
    cdef int64_t row, c, edge
    for row in range(rows):
        for c in range(begin, end):
            edge = arg_out[row * width + c]
            if edge >= 0:
                grad_x[col[edge] * width + c] += grad_out[row * width + c] * (value[edge] if value else 1)
