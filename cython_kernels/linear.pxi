# Tasks of linear layers, checked and run on threads; to be included after record.pxi and linear_fields.pxi.
from cython.parallel cimport prange

cdef extern from "linear.h":
    ctypedef void kernel_fn(const void *task, int64_t begin, int64_t end) noexcept nogil
    ctypedef kernel_fn *longest_table[3][2]
    ctypedef struct products:
        longest_table by_vectors
        kernel_fn *by_tiles
    products linear_pack, linear_kernel, linear_chunk, linear_end
    int amx_allowed() noexcept nogil

cdef enum:
    TILES = 3  # level of AMX, which computes in float32
    TILE_ROWS = 48  # rows of numbers in float32 that three tiles of bfloat16 take
    BLOCK = 32  # rows of x in a piece of work, and of the matrix in a tile

cdef bint has_tiles = amx_allowed()


def panel(bint is_double, int isa, int64_t depth):
    """Rows and columns of a panel of a matrix of so many rows, as in linear.inc and linear_tiles.inc."""
    if isa == TILES:
        return (depth + BLOCK - 1) // BLOCK * TILE_ROWS, 16
    return depth + 1, (4 if isa == 2 else 2) * (16 << isa) // (8 if is_double else 4)


cdef int64_t blocks(const linear_task *task) noexcept nogil:
    return (task.rows + BLOCK - 1) // BLOCK


cdef kernel_fn *chosen(const products *kernels, int isa, bint is_double) noexcept nogil:
    return kernels.by_tiles if isa == TILES else kernels.by_vectors[isa][is_double]


cdef int fill_packed(linear_task *task, dict fields, int isa, bint backward) except -1:
    cdef bint is_double = fill_linear(task, fields)
    cdef int64_t packed = task.ins if backward else task.outs, depth = task.outs if backward else task.ins
    if isa == TILES and (is_double or not has_tiles):
        raise ValueError("linear: tiles are of float32, and of processors with AMX")
    if (task.depth, task.width) != panel(is_double, isa, depth) or task.columns * task.width < packed:
        raise ValueError(f"linear: panels {task.columns} x {task.depth} x {task.width} do not hold the weight")
    return is_double


cdef void team(kernel_fn *kernel, const linear_task *task, int64_t size, int threads) noexcept nogil:
    # Several pieces per thread even out what their neighbours on the machine do, and what few of them leave over.
    cdef int pieces = <int>size if size < 32 * threads else 8 * threads, piece
    if threads == 1:
        kernel(task, 0, size)
        return
    for piece in prange(pieces, num_threads=threads, schedule="dynamic", chunksize=1):
        kernel(task, size * piece // pieces, size * (piece + 1) // pieces)
