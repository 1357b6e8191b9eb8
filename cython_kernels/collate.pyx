# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Slices of many graphs side by side, each written once; `gnnbench.graph.union` has checked graphs and sizes."""

from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t

include "record.pxi"

cdef struct Starts:
    const int64_t *ptr
    const int64_t *ids
    int64_t *out  # [count + 1]
    int64_t count, graphs

cdef struct Take:
    const int64_t *ptr
    const int64_t *ids
    const int64_t *starts
    const char *values
    char *out
    int64_t count, row_bytes

cdef struct Edges:
    const int64_t *edge_ptr
    const int64_t *ids
    const int64_t *starts  # of nodes in the batch
    const int64_t *edge_starts
    const int32_t *edge_index  # [2, num_edges]
    int64_t *out  # [2, out_edges]
    int64_t count, num_edges, out_edges

# Of all graphs, those of a batch, and the batch; a transpose is NULL where none is wanted.
cdef struct Rows:
    const int64_t *graph_ptr
    const int64_t *edge_ptr
    const int64_t *rowptr
    const int32_t *col
    const int32_t *edge_id
    const int64_t *transposed_rowptr
    const int32_t *transposed_col
    const int64_t *ids
    const int64_t *starts
    const int64_t *edge_starts
    int64_t *out_rowptr
    int32_t *out_col
    int32_t *out_edge_id
    int64_t *out_transposed_rowptr
    int32_t *out_transposed_col
    int64_t count


def starts(*fields) -> bool:
    """Where slices begin once they are side by side; False for an id that is no graph."""
    cdef Starts s
    cdef int64_t i, total = 0
    cdef bint known = True
    fill(&s, sizeof(s), fields)
    with nogil:
        s.out[0] = 0
        for i in range(s.count):
            if s.ids[i] < 0 or s.ids[i] >= s.graphs:
                known = False
                break
            total += s.ptr[s.ids[i] + 1] - s.ptr[s.ids[i]]
            s.out[i + 1] = total
    return known


def take(int threads, *fields):
    """Rows of `row_bytes` bytes, whatever they hold."""
    cdef Take s
    cdef int64_t i
    fill(&s, sizeof(s), fields)
    with nogil:
        for i in prange(s.count, num_threads=threads, schedule="dynamic", chunksize=16):
            copy_slice(&s, i)


cdef void copy_slice(const Take *s, int64_t i) noexcept nogil:
    cdef int64_t begin = s.ptr[s.ids[i]], size = (s.starts[i + 1] - s.starts[i]) * s.row_bytes
    if size:  # otherwise an address may be NULL, which memcpy must not be given
        memcpy(s.out + s.starts[i] * s.row_bytes, s.values + begin * s.row_bytes, size)


def edge_index(int threads, *fields):
    """Both ends of all edges by the numbers that nodes have in the batch."""
    cdef Edges s
    cdef int64_t i
    fill(&s, sizeof(s), fields)
    with nogil:
        for i in prange(s.count, num_threads=threads, schedule="dynamic", chunksize=16):
            copy_edges(&s, i)


cdef void copy_edges(const Edges *s, int64_t i) noexcept nogil:
    cdef const int32_t *src = s.edge_index + s.edge_ptr[s.ids[i]]
    cdef const int32_t *dst = src + s.num_edges
    cdef int64_t *out = s.out + s.edge_starts[i]
    cdef int64_t size = s.edge_starts[i + 1] - s.edge_starts[i], first = s.starts[i], e
    for e in range(size):
        out[e] = src[e] + first
    out += s.out_edges
    for e in range(size):
        out[e] = dst[e] + first


def rows(int threads, *fields):
    """The CSR matrix of a batch and its transpose."""
    cdef Rows s
    cdef int64_t i
    fill(&s, sizeof(s), fields)
    with nogil:
        for i in prange(s.count, num_threads=threads, schedule="dynamic", chunksize=16):
            copy_rows(&s, i)
        s.out_rowptr[s.starts[s.count]] = s.edge_starts[s.count]
        if s.out_transposed_rowptr:
            s.out_transposed_rowptr[s.starts[s.count]] = s.edge_starts[s.count]


cdef void copy_rows(const Rows *s, int64_t i) noexcept nogil:
    cdef int64_t node = s.starts[i], nodes = s.starts[i + 1] - node, from_node = s.graph_ptr[s.ids[i]]
    cdef int64_t edge = s.edge_starts[i], edges = s.edge_starts[i + 1] - edge, from_edge = s.edge_ptr[s.ids[i]]
    moved_rows(s.rowptr + from_node, nodes, edge - from_edge, s.out_rowptr + node)
    moved(s.col + from_edge, edges, <int32_t>node, s.out_col + edge)
    moved(s.edge_id + from_edge, edges, <int32_t>edge, s.out_edge_id + edge)
    if s.out_transposed_rowptr:
        moved_rows(s.transposed_rowptr + from_node, nodes, edge - from_edge, s.out_transposed_rowptr + node)
        moved(s.transposed_col + from_edge, edges, <int32_t>node, s.out_transposed_col + edge)


cdef void moved_rows(const int64_t *values, int64_t size, int64_t by, int64_t *out) noexcept nogil:
    cdef int64_t k
    for k in range(size):
        out[k] = values[k] + by


cdef void moved(const int32_t *values, int64_t size, int32_t by, int32_t *out) noexcept nogil:
    cdef int64_t k
    for k in range(size):
        out[k] = values[k] + by
