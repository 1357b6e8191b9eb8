# Tasks of linear layers, checked, given memory and run; to be included after record.pxi and linear_fields.pxi.
from cython.parallel cimport prange
from libc.stdlib cimport free

cdef extern from "stdlib.h":
    int posix_memalign(void **memory, size_t alignment, size_t size)

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
    ROWS = 6  # rows of a tile of vectors, as in linear.inc
    BLOCK = 32  # rows of x in a piece of work, and of the matrix in a tile
    LINE = 64  # bytes of a cache line
    MOST_KEPT = 4 << 20  # bytes to work in that are kept between calls

cdef struct Memory:
    char *first
    int64_t bytes

cdef bint has_tiles = amx_allowed()
cdef Memory kept = Memory(NULL, 0)


cdef int fill_layer(linear_task *task, dict fields, int isa, bint backward) except -1:
    """Take the fields of a layer, and lay out its matrix in panels, as in linear.inc and linear_tiles.inc."""
    cdef bint is_double = fill_linear(task, fields)
    cdef int64_t packed = task.ins if backward else task.outs, depth = task.outs if backward else task.ins
    if isa == TILES and (is_double or not has_tiles):
        raise ValueError("linear: tiles are of float32, and of processors with AMX")
    if backward and task.chunks < 1:
        raise ValueError(f"linear: chunks is {task.chunks}, but must be at least 1")
    task.slices = 1
    task.depth, task.width = depth + 1, (4 if isa == 2 else 2) * (16 << isa) // (8 if is_double else 4)
    if isa == TILES:
        task.depth, task.width = (depth + BLOCK - 1) // BLOCK * TILE_ROWS, 16
    task.columns = (packed + task.width - 1) // task.width
    return is_double


cdef int64_t lines(int64_t bytes) noexcept:
    return (bytes + LINE - 1) // LINE * LINE


cdef int64_t place(linear_task *task, bint is_double, char *memory) noexcept:
    """Tell a layer where it has memory to work in, and return how many bytes that is."""
    cdef int64_t bytes = 8 if is_double else 4
    cdef int64_t panels = lines(task.columns * task.depth * task.width * bytes)
    task.panels, task.partial = memory, memory + panels
    return panels + lines(task.chunks * task.outs * (task.columns * task.width + 1) * bytes)


cdef Memory taken(int64_t bytes) except *:
    """Take memory, of unknown contents, until `give`: under the GIL, so that no other call has the same."""
    global kept
    cdef Memory memory = kept
    kept = Memory(NULL, 0)
    if memory.bytes < bytes:
        free(memory.first)
        memory.bytes = bytes
        if posix_memalign(<void **>&memory.first, LINE, bytes):
            raise MemoryError("linear: no memory to work in")
    return memory


cdef void give(Memory memory) noexcept:
    global kept
    if memory.bytes > MOST_KEPT or kept.first != NULL:
        free(memory.first)
    else:
        kept = memory


cdef int64_t blocks(const linear_task *task) noexcept nogil:
    return (task.rows + BLOCK - 1) // BLOCK


cdef kernel_fn *chosen(const products *kernels, int isa, bint is_double) noexcept nogil:
    return kernels.by_tiles if isa == TILES else kernels.by_vectors[isa][is_double]


cdef void team(
    kernel_fn *kernel, const linear_task *task, int64_t size, int threads, int64_t step=1
) noexcept nogil:
    # Several pieces per thread even out what their neighbours on the machine do, and what few of them leave over.
    cdef int64_t steps = (size + step - 1) // step
    cdef int pieces = <int>steps if steps < 32 * threads else 8 * threads, piece
    if threads == 1:
        kernel(task, 0, size)
        return
    for piece in prange(pieces, num_threads=threads, schedule="dynamic", chunksize=1):
        kernel(task, steps * piece // pieces * step, min(steps * (piece + 1) // pieces * step, size))
