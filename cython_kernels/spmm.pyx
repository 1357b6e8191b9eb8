# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sparse-dense products: addresses in, nothing out; `gnnbench.backends.isplib` has checked every argument."""

include "rows.pxi"
from libc.stdint cimport uint16_t

cdef extern from "spmm.h":
    struct spmm:
        const int64_t *rowptr
        const int32_t *col
        const void *value
        const void *x
        void *out
        int32_t *arg_out
        int64_t heads, width, ahead
        int mean, min
    struct blocked:
        const int64_t *rowptr
        const int32_t *start
        const uint16_t *local
        const void *value
        const void *x
        void *ordered
        void *packed
        void *sums
        void *out
        int64_t rows, width, column, blocks
        int shift, mean
    kernel_table spmm_sum_kernels, spmm_extremum_kernels
    kernel_table blocked_pack_kernels, blocked_order_kernels, blocked_gather_kernels

ctypedef fused real:
    float
    double


def sum(uintptr_t rowptr, uintptr_t col, uintptr_t value, uintptr_t x, uintptr_t out, int64_t rows, int64_t heads,
        int64_t width, bint mean, bint is_double, int isa, int64_t ahead, int threads):
    cdef spmm task
    task.rowptr, task.col, task.value = <const int64_t *>rowptr, <const int32_t *>col, <const void *>value
    task.x, task.out, task.heads, task.width, task.mean = <const void *>x, <void *>out, heads, width, mean
    task.ahead = ahead
    with nogil:
        run_team(kernel_for(spmm_sum_kernels, isa, is_double, width), &task, task.rowptr, rows, threads)


def plan(uintptr_t rowptr_, uintptr_t col_, uintptr_t start_, uintptr_t local_, int64_t rows, int64_t blocks,
         int shift, int threads):
    """Fill `start` [blocks, rows + 1], given as zeros, and `local` [E] of a plan for `blocked_sum`."""
    cdef const int64_t *rowptr = <const int64_t *>rowptr_
    cdef const int32_t *col = <const int32_t *>col_
    cdef int32_t *start = <int32_t *>start_
    cdef int32_t total = 0, count
    cdef int64_t row, block
    with nogil:
        for row in prange(rows, num_threads=threads, schedule="static"):
            count_blocks(col, rowptr[row], rowptr[row + 1], start + row, rows + 1, shift)
        for block in range(blocks):
            for row in range(rows + 1):
                count = start[block * (rows + 1) + row]
                start[block * (rows + 1) + row] = total
                total += count
        for row in prange(rows, num_threads=threads, schedule="static"):
            place(col, rowptr[row], rowptr[row + 1], start + row, rows + 1, shift, <uint16_t *>local_)


cdef void count_blocks(const int32_t *col, int64_t begin, int64_t end, int32_t *start, int64_t stride,
                       int shift) noexcept nogil:
    cdef int64_t e
    for e in range(begin, end):
        start[(col[e] >> shift) * stride] += 1


cdef void place(const int32_t *col, int64_t begin, int64_t end, const int32_t *start, int64_t stride, int shift,
                uint16_t *local) noexcept nogil:
    cdef int64_t e, block = -1, at = 0
    for e in range(begin, end):
        if col[e] >> shift != block:
            block = col[e] >> shift
            at = start[block * stride]
        local[at] = <uint16_t>(col[e] & ((1 << shift) - 1))
        at += 1


def blocked_sum(uintptr_t rowptr, uintptr_t start, uintptr_t local, uintptr_t value, uintptr_t x, uintptr_t ordered,
                uintptr_t packed, uintptr_t sums, uintptr_t out, int64_t rows, int64_t cols, int64_t width,
                int64_t blocks, int shift, bint mean, bint is_double, int isa, int threads):
    cdef blocked task
    cdef int piece
    task.rowptr, task.start, task.local = <const int64_t *>rowptr, <const int32_t *>start, <const uint16_t *>local
    task.value, task.x, task.ordered = <const void *>value, <const void *>x, <void *>ordered
    task.packed, task.sums, task.out = <void *>packed, <void *>sums, <void *>out
    task.rows, task.width, task.blocks, task.shift, task.mean = rows, width, blocks, shift, mean
    task.column = 0
    cdef kernel_fn *pack = kernel_for(blocked_pack_kernels, isa, is_double, 16)
    cdef kernel_fn *gather = kernel_for(blocked_gather_kernels, isa, is_double, 16)
    with nogil:
        if value:
            run_rows(kernel_for(blocked_order_kernels, isa, is_double, 16), &task, task.rowptr, rows, 1, threads)
        while task.column < width:
            for piece in prange(threads, num_threads=threads, schedule="static"):
                pack(&task, cols * piece // threads, cols * (piece + 1) // threads)
            for piece in prange(threads, num_threads=threads, schedule="static"):
                gather(&task, split_rows(task.rowptr, rows, piece, threads),
                       split_rows(task.rowptr, rows, piece + 1, threads))
            task.column += 8 if is_double else 16


def extremum(uintptr_t rowptr, uintptr_t col, uintptr_t value, uintptr_t x, uintptr_t out, uintptr_t arg_out,
             int64_t rows, int64_t width, bint is_min, bint is_double, int isa, int64_t ahead, int threads):
    cdef spmm task
    task.rowptr, task.col, task.value = <const int64_t *>rowptr, <const int32_t *>col, <const void *>value
    task.x, task.out, task.arg_out = <const void *>x, <void *>out, <int32_t *>arg_out
    task.heads, task.width, task.min, task.ahead = 1, width, is_min, ahead
    with nogil:
        run_team(kernel_for(spmm_extremum_kernels, isa, is_double, width), &task, task.rowptr, rows, threads)


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
