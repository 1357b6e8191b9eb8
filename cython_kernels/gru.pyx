# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Gated recurrent units, by the fields of `struct gru` and those of the linear layers of what is read and the state.

Chunks of rows do not depend on the number of threads, nor does the order in which their gradients are added.
"""
from cython.parallel cimport threadid

include "record.pxi"
include "gru_fields.pxi"  # first: gru.h compiles the kernels of linear.h beside its own
include "linear_fields.pxi"
include "linear.pxi"

cdef extern from "gru.h":
    ctypedef kernel_fn *kernel_table[3][2][5]
    kernel_fn *kernel_for(kernel_table table, int isa, int is_double, int64_t width) noexcept nogil
    kernel_table gru_kernels, gru_backward_kernels, gru_end_kernels

cdef struct unit:  # with its two layers
    gru_task own
    linear_task read
    linear_task state
    int bytes  # of a number
    bint by_tiles


def forward(int isa, int level, int threads, dict of_read, dict of_state, **fields):
    cdef unit u
    cdef bint is_double = fill(&u, level, False, of_read, of_state, fields)
    cdef kernel_fn *gates = kernel_for(gru_kernels, isa, is_double, u.own.width)
    cdef kernel_fn *rows = chosen(&linear_kernel, level, is_double)
    cdef int64_t chunk, size = room(&u)
    cdef Memory memory = taken(place_both(&u, is_double, NULL) + size * threads)
    cdef char *rooms = memory.first + place_both(&u, is_double, memory.first)
    with nogil:
        pack(&u, level, is_double, threads)
        for chunk in prange(u.own.chunks, num_threads=threads, schedule="dynamic", chunksize=1):
            forward_chunk(u, gates, rows, rooms + size * threadid(), chunk)
    give(memory)


def backward(int isa, int level, int threads, dict of_read, dict of_state, **fields):
    cdef unit u
    cdef bint is_double = fill(&u, level, True, of_read, of_state, fields)
    cdef kernel_fn *gates = kernel_for(gru_backward_kernels, isa, is_double, u.own.width)
    cdef kernel_fn *end = kernel_for(gru_end_kernels, isa, is_double, u.own.width)
    cdef kernel_fn *chunks = chosen(&linear_chunk, level, is_double)
    cdef int64_t chunk, size = room(&u)
    cdef Memory memory
    cdef char *rooms
    need("gru", fields, ("grad_out", "kept"))
    for given in (of_read, of_state):
        need("linear", given, ("grad_weight", "grad_bias"))
    memory = taken(place_both(&u, is_double, NULL) + size * threads)
    rooms = memory.first + place_both(&u, is_double, memory.first)
    with nogil:
        pack(&u, level, is_double, threads)
        for chunk in prange(u.own.chunks, num_threads=threads, schedule="dynamic", chunksize=1):
            backward_chunk(u, gates, chunks, end, rooms + size * threadid(), chunk)
        team(chosen(&linear_end, level, is_double), &u.read, u.read.outs, threads)
        team(chosen(&linear_end, level, is_double), &u.state, u.state.outs, threads)
    give(memory)


cdef void forward_chunk(unit u, kernel_fn *gates, kernel_fn *rows, char *room, int64_t chunk) noexcept nogil:
    cdef int64_t first = begin(&u, chunk), last = begin(&u, chunk + 1), wide = 3 * u.own.width * u.bytes
    # Kernels count from the first of all rows.
    u.own.room, u.read.out, u.state.out = room, room - first * wide, room + (last - 2 * first) * wide
    if u.by_tiles:
        rows(&u.read, first // BLOCK, (last + BLOCK - 1) // BLOCK)
        rows(&u.state, first // BLOCK, (last + BLOCK - 1) // BLOCK)
    else:
        rows(&u.read, first, last)
        rows(&u.state, first, last)
    gates(&u.own, first, last)


cdef void backward_chunk(unit u, kernel_fn *gates, kernel_fn *chunks, kernel_fn *end, char *room,
                         int64_t chunk) noexcept nogil:
    cdef int64_t first = begin(&u, chunk), last = begin(&u, chunk + 1), wide = 3 * u.own.width * u.bytes
    u.own.room, u.read.grad_out, u.state.grad_out = room, room - first * wide, room + (last - 2 * first) * wide
    u.state.grad_x = room + 2 * (last - first) * wide - first * u.own.width * u.bytes
    gates(&u.own, first, last)
    chunks(&u.read, chunk, chunk + 1)
    chunks(&u.state, chunk, chunk + 1)
    end(&u.own, first, last)


cdef int64_t begin(const unit *u, int64_t chunk) noexcept nogil:
    """The first row of a chunk, as kernels of linear layers have it."""
    if not u.by_tiles:
        return u.own.rows * chunk // u.own.chunks
    return min(blocks(&u.read) * chunk // u.own.chunks * BLOCK, u.own.rows)


cdef int64_t room(const unit *u) noexcept:
    """Bytes for the products of a chunk."""
    return lines(((u.own.rows + u.own.chunks - 1) // u.own.chunks + BLOCK) * 7 * u.own.width * u.bytes)


cdef int64_t place_both(unit *u, bint is_double, char *memory) noexcept:
    cdef int64_t first = place(&u.read, is_double, memory)
    return first + place(&u.state, is_double, memory + first)


cdef void pack(unit *u, int level, bint is_double, int threads) noexcept nogil:
    team(chosen(&linear_pack, level, is_double), &u.read, u.read.columns, threads)
    team(chosen(&linear_pack, level, is_double), &u.state, u.state.columns, threads)


cdef int fill(unit *u, int level, bint backward, dict of_read, dict of_state, dict fields) except -1:
    cdef bint is_double = fill_gru(&u.own, fields)
    cdef linear_task *layer
    cdef int k
    u.bytes, u.by_tiles = 8 if is_double else 4, level == TILES
    for k in range(2):
        layer = &u.state if k else &u.read
        if fill_layer(layer, of_state if k else of_read, level, backward) != is_double:
            raise ValueError("gru: its tensors have different types")
        if (layer.rows, layer.outs, layer.chunks) != (u.own.rows, 3 * u.own.width, u.own.chunks) or layer.chunks < 1:
            raise ValueError(f"gru: a layer of {layer.rows} x {layer.outs} in {layer.chunks} chunks does not fit")
        layer.grad_out = layer.weight if backward else NULL  # tells kernels the direction; its place is set later
    if u.state.ins != u.own.width:
        raise ValueError(f"gru: the state has {u.state.ins} numbers, but must have {u.own.width}")
    return is_double
