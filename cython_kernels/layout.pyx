# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sorting of edges into rows, by the fields of structs in `layout.h`; indices were checked when the graph was built."""

from cython.parallel cimport prange
from libc.stdlib cimport calloc, free, malloc

include "record.pxi"
include "layout_fields.pxi"

cdef extern from "kernel.h":
    int isa_highest() noexcept nogil
    int64_t split_rows(const int64_t *rowptr, int64_t rows, int64_t part, int64_t parts) noexcept nogil

cdef extern from *:
    """
    #ifndef _OPENMP
    #define _OPENMP 0
    #endif
    """
    const int _OPENMP


def highest_isa() -> int:
    """0 baseline, 1 AVX2, 2 AVX-512, 3 AMX besides, for products of matrices."""
    return isa_highest()


def openmp_version() -> int:
    """The `_OPENMP` date the kernels were compiled with, 0 without OpenMP."""
    return _OPENMP


def sort(int threads, **fields):
    """Sort COO edges by row, then column, or those of a CSR matrix by column; equal edges in their order."""
    cdef sorting_task s
    fill_sorting(&s, fields)
    if not (s.coo_row and s.coo_col or s.csr_rowptr and s.csr_col or s.num_edges == 0):
        raise TypeError("sorting: coo_row and coo_col, or csr_rowptr and csr_col are missing")
    cdef int64_t wanted = min(s.num_edges >> 16, 1 << 10), buckets, b
    cdef int piece, pieces = threads if s.num_edges > 1 << 16 else 1
    cdef int64_t *counts
    while s.num_rows >> s.shift > wanted:
        s.shift += 1
    buckets = (s.num_rows >> s.shift) + 1
    counts = <int64_t *>calloc(pieces * buckets, sizeof(int64_t))
    s.bucket = <int64_t *>malloc((buckets + 1) * sizeof(int64_t))
    s.cursor = <int64_t *>calloc(s.num_rows + 1, sizeof(int64_t))
    s.edges = <edge_task *>malloc((s.num_edges + 1) * sizeof(edge_task))
    try:
        if not (counts and s.bucket and s.cursor and s.edges):
            raise MemoryError(f"no memory to sort {s.num_edges} edges")
        with nogil:
            for piece in prange(pieces, num_threads=pieces, schedule="static"):
                distribute(&s, counts + piece * buckets, piece, pieces, True)
            bucket_starts(&s, counts, pieces, buckets)
            for piece in prange(pieces, num_threads=pieces, schedule="static"):
                distribute(&s, counts + piece * buckets, piece, pieces, False)
            for b in prange(buckets, num_threads=pieces, schedule="dynamic", chunksize=1):
                sort_bucket(&s, b, s.csr_rowptr == NULL)
            s.rowptr[s.num_rows] = s.num_edges
    finally:
        free(counts)
        free(s.bucket)
        free(s.cursor)
        free(s.edges)


cdef void distribute(const sorting_task *s, int64_t *counts, int piece, int pieces, bint count_only) noexcept nogil:
    # Piece after piece and bucket by bucket, edges keep their order, whatever the number of pieces.
    cdef int64_t begin = s.num_edges * piece // pieces, end = s.num_edges * (piece + 1) // pieces, e, row = 0, low, high
    cdef edge_task *slot
    if count_only:
        for e in range(begin, end):
            counts[(s.coo_row[e] if s.csr_rowptr == NULL else s.csr_col[e]) >> s.shift] += 1
    elif s.csr_rowptr == NULL:
        for e in range(begin, end):
            slot = s.edges + counts[s.coo_row[e] >> s.shift]
            counts[s.coo_row[e] >> s.shift] += 1
            slot.row, slot.col, slot.id = <int32_t>s.coo_row[e], <int32_t>s.coo_col[e], <int32_t>e
    else:
        low, high = 0, s.num_cols
        while low < high:  # the row of edge `begin`: the last one that starts at or before it
            row = (low + high) // 2
            if s.csr_rowptr[row + 1] <= begin:
                low = row + 1
            else:
                high = row
        row = low
        for e in range(begin, end):
            while s.csr_rowptr[row + 1] <= e:
                row += 1
            slot = s.edges + counts[s.csr_col[e] >> s.shift]
            counts[s.csr_col[e] >> s.shift] += 1
            slot.row, slot.col, slot.id = s.csr_col[e], <int32_t>row, <int32_t>e


cdef void bucket_starts(const sorting_task *t, int64_t *counts, int pieces, int64_t buckets) noexcept nogil:
    cdef int64_t b, total = 0, count
    cdef int piece
    for b in range(buckets):
        t.bucket[b] = total
        for piece in range(pieces):
            count = counts[piece * buckets + b]
            counts[piece * buckets + b] = total
            total += count
    t.bucket[buckets] = total


cdef void sort_bucket(const sorting_task *t, int64_t b, bint sort_cols) noexcept nogil:
    cdef int64_t first = b << t.shift, last = min((b + 1) << t.shift, t.num_rows), row, e, start = t.bucket[b], at
    for e in range(t.bucket[b], t.bucket[b + 1]):
        t.cursor[t.edges[e].row] += 1
    for row in range(first, last):
        t.rowptr[row] = start
        start += t.cursor[row]
        t.cursor[row] = t.rowptr[row]
    for e in range(t.bucket[b], t.bucket[b + 1]):
        at = t.cursor[t.edges[e].row]
        t.cursor[t.edges[e].row] += 1
        t.col[at], t.perm[at] = t.edges[e].col, t.edges[e].id
    if sort_cols:
        for row in range(first, last):
            sort_row(t.col + t.rowptr[row], t.perm + t.rowptr[row], t.cursor[row] - t.rowptr[row], t.num_cols,
                     <int32_t *>(t.edges + t.bucket[b]))


cdef void sort_row(int32_t *col, int32_t *perm, int64_t count, int64_t num_cols, int32_t *spare) noexcept nogil:
    # Stable, by insertion where short, otherwise by digits through `spare` [2 * count] and back.
    cdef int64_t i = 1, j
    cdef int32_t c, p
    cdef int bits = 1, digit, shift = 0
    while i < count and col[i - 1] <= col[i]:
        i += 1
    if i >= count:
        return
    if count <= 64:
        for i in range(i, count):
            c, p, j = col[i], perm[i], i
            while j > 0 and col[j - 1] > c:
                col[j], perm[j] = col[j - 1], perm[j - 1]
                j -= 1
            col[j], perm[j] = c, p
        return
    while num_cols > <int64_t>1 << bits:
        bits += 1
    digit = (bits + 1) // 2 if bits <= 22 else (bits + 3) // 4
    while shift < bits:
        by_digit(col, perm, spare, spare + count, count, shift, digit)
        by_digit(spare, spare + count, col, perm, count, shift + digit, digit)
        shift += 2 * digit


cdef void by_digit(const int32_t *col, const int32_t *perm, int32_t *to_col, int32_t *to_perm, int64_t count,
                   int shift, int digit) noexcept nogil:
    cdef int32_t start[1 << 11]
    cdef int32_t mask = (1 << digit) - 1, total = 0, n, d
    cdef int64_t i
    memset(start, 0, sizeof(int32_t) << digit)
    for i in range(count):
        start[(<int64_t>col[i] >> shift) & mask] += 1
    for d in range(mask + 1):
        n = start[d]
        start[d] = total
        total += n
    for i in range(count):
        d = (<int64_t>col[i] >> shift) & mask
        to_col[start[d]], to_perm[start[d]] = col[i], perm[i]
        start[d] += 1


def is_symmetric(int threads, **fields) -> bool:
    """Return whether the rows of a square matrix are also its columns: each row is met in order by its reverse edges."""
    cdef csr_task s
    fill_csr(&s, fields)
    cdef int64_t *cursor = <int64_t *>malloc((s.rows + 1) * sizeof(int64_t))
    cdef int piece, pieces = threads if s.rowptr[s.rows] > 1 << 16 else 1, differs = 0
    if not cursor:
        raise MemoryError(f"no memory to compare {s.rows} rows with their transpose")
    with nogil:
        memcpy(cursor, s.rowptr, s.rows * sizeof(int64_t))
        for piece in prange(pieces, num_threads=pieces, schedule="static"):
            meet(&s, cursor, split_rows(s.rowptr, s.rows, piece, pieces),
                 split_rows(s.rowptr, s.rows, piece + 1, pieces), &differs)
    free(cursor)
    return not differs


cdef void meet(const csr_task *s, int64_t *cursor, int64_t begin, int64_t end, int *differs) noexcept nogil:
    # Of every row, the edges to the columns begin..end, which are this thread's rows of the transpose.
    cdef const int64_t *rowptr = s.rowptr
    cdef const int32_t *col = s.col
    cdef int64_t row, e, low, high
    for row in range(s.rows):
        low, high = rowptr[row], rowptr[row + 1]
        while begin > 0 and low < high:
            e = (low + high) // 2
            if col[e] < begin:
                low = e + 1
            else:
                high = e
        for e in range(low, rowptr[row + 1]):
            if col[e] >= end:
                break
            if cursor[col[e]] >= rowptr[col[e] + 1] or col[cursor[col[e]]] != row:
                differs[0] = 1
            cursor[col[e]] += 1
        if differs[0]:
            return


def is_of(int threads, **fields) -> bool:
    """Return whether the edges of all rows are those given, each at its place there."""
    cdef listed_task s
    fill_listed(&s, fields)
    cdef int piece, pieces = 8 * threads if s.rowptr[s.rows] > 1 << 16 else 1, differs = 0
    with nogil:
        for piece in prange(pieces, num_threads=threads, schedule="dynamic", chunksize=1):
            compare(&s, split_rows(s.rowptr, s.rows, piece, pieces), split_rows(s.rowptr, s.rows, piece + 1, pieces),
                    &differs)
    return not differs


cdef void compare(const listed_task *s, int64_t begin, int64_t end, int *differs) noexcept nogil:
    cdef int64_t row, e, at
    for row in range(begin, end):
        if differs[0]:
            return
        for e in range(s.rowptr[row], s.rowptr[row + 1]):
            at = s.edge_id[e] if s.edge_id else e
            if s.source[at] != s.col[e] or s.destination[at] != row:
                differs[0] = 1
                return


def self_loop_rows(**fields):
    """Where rows begin once every row has exactly one entry on the diagonal."""
    cdef loops_task s
    cdef int64_t row, e, loops
    fill_loops(&s, fields)
    with nogil:
        s.out_rowptr[0] = 0
        for row in range(s.rows):
            loops = 0
            for e in range(s.rowptr[row], s.rowptr[row + 1]):
                loops += s.col[e] == row
            s.out_rowptr[row + 1] = s.out_rowptr[row] + s.rowptr[row + 1] - s.rowptr[row] - loops + 1


def self_loop_cols(int threads, **fields):
    """The columns that go with `self_loop_rows`."""
    cdef loops_task s
    cdef int64_t row
    fill_loops(&s, fields)
    need("loops", fields, ("out_col",))
    with nogil:
        for row in prange(s.rows, num_threads=threads if s.rowptr[s.rows] > 1 << 16 else 1, schedule="static"):
            copy_with_loop(s.col, s.rowptr[row], s.rowptr[row + 1], <int32_t>row, s.out_col + s.out_rowptr[row])


cdef void copy_with_loop(const int32_t *col, int64_t begin, int64_t end, int32_t row, int32_t *out) noexcept nogil:
    cdef int64_t before = begin, after
    while before < end and col[before] < row:
        before += 1
    after = before
    while after < end and col[after] == row:
        after += 1
    if before > begin:  # otherwise `col` may be NULL, which memcpy must not be given
        memcpy(out, col + begin, (before - begin) * sizeof(int32_t))
    out[before - begin] = row
    if after < end:
        memcpy(out + before - begin + 1, col + after, (end - after) * sizeof(int32_t))
