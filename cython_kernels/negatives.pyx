# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Pairs that are not in a matrix, each equally likely, by the fields of `struct negatives`.

Among all pairs in the order of rows, the one to draw is looked up by its rank among those that are not there.
"""

from cython.parallel cimport prange

include "record.pxi"
include "negatives_fields.pxi"

cdef extern from "random.h":
    uint64_t mix(uint64_t x) noexcept nogil
    uint64_t draw_below(uint64_t *stream, uint64_t n) noexcept nogil

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void *address) noexcept nogil

cdef enum:
    PIECE = 64  # pairs: few enough for the cache lines that they fetch ahead


def draw(int threads, **fields):
    cdef negatives_task s
    cdef int64_t piece, pieces
    fill_negatives(&s, fields)
    pieces = (s.count + PIECE - 1) // PIECE
    if pieces < 64:
        threads = 1  # small work is not worth a team
    with nogil:
        for piece in prange(pieces, num_threads=threads, schedule="static"):
            draw_piece(&s, piece * PIECE, min(piece * PIECE + PIECE, s.count))


cdef void draw_piece(const negatives_task *s, int64_t begin, int64_t end) noexcept nogil:
    cdef int64_t rank[PIECE]
    cdef int64_t *row = s.out
    cdef int64_t *col = s.out + s.count
    cdef int64_t i, at, edges = s.rowptr[s.rows]
    cdef uint64_t stream
    for i in range(begin, end):
        if s.row:
            row[i] = s.row[i]
        else:
            stream = mix(mix(<uint64_t>s.seed) + <uint64_t>i)
            rank[i - begin] = <int64_t>draw_below(&stream, s.rows * s.cols - edges)
            row[i] = rank[i - begin] // s.cols  # or, by the pairs that are there, a row soon after
        prefetch(s.rowptr + row[i])
    for i in range(begin, end):
        if s.row:
            at = s.rowptr[row[i]]
            stream = mix(mix(<uint64_t>s.seed) + <uint64_t>i)
            rank[i - begin] = <int64_t>draw_below(&stream, s.cols - s.rowptr[row[i] + 1] + at)
        else:
            row[i] = find_row(s, rank[i - begin], row[i], min(s.rows - 1, (rank[i - begin] + edges) // s.cols))
            at = s.rowptr[row[i]]
            rank[i - begin] -= row[i] * s.cols - at
        prefetch(s.col + (at + s.rowptr[row[i] + 1]) // 2)
    for i in range(begin, end):
        col[i] = find_col(s, rank[i - begin], s.rowptr[row[i]], s.rowptr[row[i] + 1])


cdef inline int64_t find_row(const negatives_task *s, int64_t rank, int64_t low, int64_t high) noexcept nogil:
    """The last row, from low to high, that no more than `rank` pairs stand before."""
    cdef int64_t middle
    while low < high:
        middle = (low + high + 1) // 2
        if middle * s.cols - s.rowptr[middle] <= rank:
            low = middle
        else:
            high = middle - 1
    return low


cdef inline int64_t find_col(const negatives_task *s, int64_t rank, int64_t begin, int64_t end) noexcept nogil:
    """The column of the pair that `rank` pairs of its row stand before."""
    cdef int64_t low = begin, high = end, middle
    while low < high:
        middle = (low + high) // 2
        if s.col[middle] - (middle - begin) <= rank:
            low = middle + 1
        else:
            high = middle
    return rank + low - begin
