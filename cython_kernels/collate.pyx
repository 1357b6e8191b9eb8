# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Slices of many graphs side by side, each written once; `gnnbench.graph.union` has checked graphs and sizes."""

from cython.parallel cimport prange

include "record.pxi"
include "collate_fields.pxi"


def starts(**fields) -> bool:
    """Where slices begin once they are side by side; False for an id that is no graph."""
    cdef starts_task s
    cdef int64_t i, total = 0
    cdef bint known = True
    fill_starts(&s, fields)
    with nogil:
        s.out[0] = 0
        for i in range(s.count):
            if s.ids[i] < 0 or s.ids[i] >= s.graphs:
                known = False
                break
            total += s.ptr[s.ids[i] + 1] - s.ptr[s.ids[i]]
            s.out[i + 1] = total
    return known


def take(int threads, **fields):
    """Rows of `row_bytes` bytes, whatever they hold."""
    cdef take_task s
    cdef int64_t i
    fill_take(&s, fields)
    with nogil:
        for i in prange(s.count, num_threads=threads, schedule="dynamic", chunksize=16):
            copy_slice(&s, i)


cdef void copy_slice(const take_task *s, int64_t i) noexcept nogil:
    cdef int64_t begin = s.ptr[s.ids[i]], size = (s.starts[i + 1] - s.starts[i]) * s.row_bytes
    if size:  # otherwise an address may be NULL, which memcpy must not be given
        memcpy(s.out + s.starts[i] * s.row_bytes, s.values + begin * s.row_bytes, size)


def edge_index(int threads, **fields):
    """Both ends of all edges by the numbers that nodes have in the batch."""
    cdef edges_task s
    cdef int64_t i
    fill_edges(&s, fields)
    with nogil:
        for i in prange(s.count, num_threads=threads, schedule="dynamic", chunksize=16):
            copy_edges(&s, i)


cdef void copy_edges(const edges_task *s, int64_t i) noexcept nogil:
    cdef const int32_t *src = s.edge_index + s.edge_ptr[s.ids[i]]
    cdef const int32_t *dst = src + s.num_edges
    cdef int64_t *out = s.out + s.edge_starts[i]
    cdef int64_t size = s.edge_starts[i + 1] - s.edge_starts[i], first = s.starts[i], e
    for e in range(size):
        out[e] = src[e] + first
    out += s.out_edges
    for e in range(size):
        out[e] = dst[e] + first


def rows(int threads, **fields):
    """The CSR matrix of a batch and its transpose."""
    cdef rows_task s
    cdef int64_t i
    fill_rows(&s, fields)
    with nogil:
        for i in prange(s.count, num_threads=threads, schedule="dynamic", chunksize=16):
            copy_rows(&s, i)
        s.out_rowptr[s.starts[s.count]] = s.edge_starts[s.count]
        if s.out_transposed_rowptr:
            s.out_transposed_rowptr[s.starts[s.count]] = s.edge_starts[s.count]


cdef void copy_rows(const rows_task *s, int64_t i) noexcept nogil:
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
