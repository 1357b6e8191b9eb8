# Runs a row kernel over all rows on a team of threads; the pieces hold equal work and every row has one owner.
from cython.parallel cimport prange

cdef extern from "kernel.h":
    ctypedef void kernel_fn(const void *task, int64_t begin, int64_t end) noexcept nogil
    ctypedef kernel_fn *kernel_table[3][2][5]
    kernel_fn *kernel_for(kernel_table table, int isa, int is_double, int64_t width) noexcept nogil
    int64_t split_rows(const int64_t *rowptr, int64_t rows, int64_t part, int64_t parts) noexcept nogil

cdef inline void run_rows(kernel_fn *kernel, const void *task, const int64_t *rowptr, int64_t rows, int64_t width,
                   int threads) noexcept nogil:
    # Small work is not worth a team.
    run_team(kernel, task, rowptr, rows, 1 if (rowptr[rows] + rows) * width < 1 << 15 else threads)


cdef void run_team(kernel_fn *kernel, const void *task, const int64_t *rowptr, int64_t rows,
                   int threads) noexcept nogil:
    # Eight pieces per thread even out what their neighbours on the machine do.
    cdef int pieces = 8 * threads, piece
    if threads == 1:
        kernel(task, 0, rows)
        return
    for piece in prange(pieces, num_threads=threads, schedule="dynamic", chunksize=1):
        kernel(task, split_rows(rowptr, rows, piece, pieces), split_rows(rowptr, rows, piece + 1, pieces))
