# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sparse-dense products: addresses in, nothing out; `gnnbench.backends.isplib` has checked every argument."""

include "rows.pxi"
from libc.stdint cimport uint16_t

cdef extern from "spmm.h":
    ctypedef kernel_fn *longest_table[3][2]
    struct spmm:
        const int64_t *rowptr
        const int32_t *col
        const void *value
        const void *x
        void *packed
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
        void *from_ "from"
        int32_t *seen
        int32_t *arg_out
        int64_t rows, width, column, blocks
        int shift, mean, min, bf16, lines
    kernel_table spmm_sum_kernels, spmm_extremum_kernels
    longest_table bf16_pack_kernels, bf16_sum_kernels
    longest_table blocked_order_kernels, blocked_pack_kernels, blocked_sum_kernels, blocked_extremum_kernels

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


def bf16_sum(uintptr_t rowptr, uintptr_t col, uintptr_t value, uintptr_t x, uintptr_t packed, uintptr_t out,
             int64_t rows, int64_t cols, int64_t width, bint mean, int isa, int64_t ahead, int threads):
    cdef spmm task
    cdef int piece
    task.rowptr, task.col, task.value = <const int64_t *>rowptr, <const int32_t *>col, <const void *>value
    task.x, task.packed, task.out, task.heads, task.width = <const void *>x, <void *>packed, <void *>out, 1, width
    task.mean, task.ahead = mean, ahead
    with nogil:
        for piece in prange(threads, num_threads=threads, schedule="static"):
            bf16_pack_kernels[isa][0](&task, cols * piece // threads, cols * (piece + 1) // threads)
        run_team(bf16_sum_kernels[isa][0], &task, task.rowptr, rows, threads)


def plan(uintptr_t rowptr_, uintptr_t col_, uintptr_t start_, uintptr_t local_, int64_t rows, int64_t blocks,
         int shift, int threads):
    """Fill `start` [blocks, rows + 1], given as zeros, and `local` [E] of a plan for `blocked_sum`."""
    cdef const int64_t *rowptr = <const int64_t *>rowptr_
    cdef const int32_t *col = <const int32_t *>col_
    cdef int32_t *start = <int32_t *>start_
    cdef int32_t total = 0, count
    cdef int64_t row, block
    with nogil:
        for row in prange(rows, num_threads=threads, schedule="dynamic", chunksize=512):
            count_blocks(col, rowptr[row], rowptr[row + 1], start + row, rows + 1, shift)
        for block in range(blocks):
            for row in range(rows + 1):
                count = start[block * (rows + 1) + row]
                start[block * (rows + 1) + row] = total
                total += count
        for row in prange(rows, num_threads=threads, schedule="dynamic", chunksize=512):
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


def order(uintptr_t rowptr, uintptr_t start, uintptr_t value, uintptr_t ordered, int64_t rows, int64_t blocks,
          bint is_double, int isa, int threads):
    """Bring edge weights into the order of a plan."""
    cdef blocked task
    task.rowptr, task.start, task.value = <const int64_t *>rowptr, <const int32_t *>start, <const void *>value
    task.ordered, task.rows, task.blocks = <void *>ordered, rows, blocks
    with nogil:
        run_rows(blocked_order_kernels[isa][is_double], &task, task.rowptr, rows, 1, threads)


def blocked_sum(uintptr_t rowptr, uintptr_t start, uintptr_t local, uintptr_t ordered, uintptr_t x,
                uintptr_t packed, uintptr_t sums, uintptr_t out, int64_t rows, int64_t cols, int64_t width,
                int64_t blocks, int shift, bint mean, bint bf16, bint is_double, int isa, int threads):
    cdef blocked task
    task.rowptr, task.start, task.local = <const int64_t *>rowptr, <const int32_t *>start, <const uint16_t *>local
    task.ordered, task.x, task.packed = <void *>ordered, <const void *>x, <void *>packed
    task.sums, task.out, task.rows, task.width = <void *>sums, <void *>out, rows, width
    task.blocks, task.shift, task.mean, task.bf16 = blocks, shift, mean, bf16
    with nogil:
        run_tiles(&task, blocked_pack_kernels[isa][is_double], blocked_sum_kernels[isa][is_double], cols,
                  8 if is_double else 32 if bf16 else 16, 2, threads)


def blocked_extremum(uintptr_t rowptr, uintptr_t start, uintptr_t local, uintptr_t ordered, uintptr_t x,
                     uintptr_t packed, uintptr_t best, uintptr_t from_, uintptr_t seen, uintptr_t out,
                     uintptr_t arg_out, int64_t rows, int64_t cols, int64_t width, int64_t blocks, int shift,
                     bint is_min, bint is_double, int isa, int threads):
    cdef blocked task
    task.rowptr, task.start, task.local = <const int64_t *>rowptr, <const int32_t *>start, <const uint16_t *>local
    task.ordered, task.x, task.packed = <void *>ordered, <const void *>x, <void *>packed
    task.sums, task.from_, task.seen = <void *>best, <void *>from_, <int32_t *>seen
    task.out, task.arg_out, task.rows, task.width = <void *>out, <int32_t *>arg_out, rows, width
    task.blocks, task.shift, task.min, task.bf16 = blocks, shift, is_min, False
    with nogil:
        run_tiles(&task, blocked_pack_kernels[isa][is_double], blocked_extremum_kernels[isa][is_double], cols,
                  8 if is_double else 16, 1, threads)


cdef void run_tiles(blocked *task, kernel_fn *pack, kernel_fn *gather, int64_t cols, int tile,
                    int lines, int threads) noexcept nogil:
    # A line holds `tile` columns; up to `lines` of them are walked at once.
    # Each thread walks all its rows per block, so that a block's features are fetched once per thread.
    cdef int piece
    task.column = 0
    while task.column < task.width:
        task.lines = lines if task.width - task.column > tile else 1
        for piece in prange(threads, num_threads=threads, schedule="static"):
            pack(task, cols * piece // threads, cols * (piece + 1) // threads)
        for piece in prange(threads, num_threads=threads, schedule="static"):
            gather(task, split_rows(task.rowptr, task.rows, piece, threads),
                   split_rows(task.rowptr, task.rows, piece + 1, threads))
        task.column += task.lines * tile


def extremum(uintptr_t rowptr, uintptr_t col, uintptr_t value, uintptr_t x, uintptr_t out, uintptr_t arg_out,
             int64_t rows, int64_t width, bint is_min, bint is_double, int isa, int64_t ahead, int threads):
    cdef spmm task
    task.rowptr, task.col, task.value = <const int64_t *>rowptr, <const int32_t *>col, <const void *>value
    task.x, task.out, task.arg_out = <const void *>x, <void *>out, <int32_t *>arg_out
    task.heads, task.width, task.min, task.ahead = 1, width, is_min, ahead
    with nogil:
        run_team(kernel_for(spmm_extremum_kernels, isa, is_double, width), &task, task.rowptr, rows, threads)


def extremum_backward(uintptr_t col, uintptr_t value, uintptr_t arg_out, uintptr_t grad_out, uintptr_t grad_x,
                      int64_t rows, int64_t cols, int64_t width, bint is_double, int threads):
    # A piece owns a range of sources and whole cache lines of their columns, so no two threads add to one place.
    cdef int pieces = threads if rows * width > 1 << 14 else 1, piece
    cdef int64_t strips = max(1, min(pieces, width // 16)), ranges = -(-pieces // strips)
    with nogil:
        for piece in prange(<int>(strips * ranges), num_threads=pieces, schedule="static"):
            if is_double:
                scatter(<const int32_t *>col, <const double *>value, <const int32_t *>arg_out,
                        <const double *>grad_out, <double *>grad_x, rows, cols, width, piece % strips, strips,
                        piece // strips, ranges)
            else:
                scatter(<const int32_t *>col, <const float *>value, <const int32_t *>arg_out,
                        <const float *>grad_out, <float *>grad_x, rows, cols, width, piece % strips, strips,
                        piece // strips, ranges)


cdef void scatter(const int32_t *col, const real *value, const int32_t *arg_out, const real *grad_out, real *grad_x,
                  int64_t rows, int64_t cols, int64_t width, int64_t strip, int64_t strips, int64_t range_,
                  int64_t ranges) noexcept nogil:
    cdef int64_t row, c, edge, begin = width * strip // strips, end = width * (strip + 1) // strips
    cdef int64_t first = cols * range_ // ranges, last = cols * (range_ + 1) // ranges
    for row in range(rows):
        for c in range(begin, end):
            edge = arg_out[row * width + c]
            if edge >= 0 and first <= col[edge] < last:
                grad_x[col[edge] * width + c] += grad_out[row * width + c] * (value[edge] if value else 1)
