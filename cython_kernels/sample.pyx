# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sampling of neighbourhoods, hop by hop, by the fields of structs in `sample.h`.

Rows are checked as they are read, for they may be shared with other processes or mapped from a file.
"""

include "record.pxi"
include "sample_fields.pxi"

cdef extern from "random.h":
    uint64_t mix(uint64_t x) noexcept nogil
    uint64_t draw_below(uint64_t *stream, uint64_t n) noexcept nogil
    double draw_unit(uint64_t *stream) noexcept nogil

from libc.math cimport INFINITY, expm1, log, log1p

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void *address) noexcept nogil

cdef enum:
    PIECE = 128  # rows: few enough for the cache lines that they fetch ahead
    AHEAD = 16


cdef inline slot_task *find(
    slot_task *table, int64_t mask, int64_t node, int64_t base, const int32_t *trees, int32_t tree
) noexcept nogil:
    """The slot of a node, or the free one that is to be its; of a tree's node, where `trees` has those of places."""
    cdef int64_t at = <int64_t>mix(<uint64_t>node + (<uint64_t>tree << 32)) & mask
    while table[at].position >= base and (
        table[at].node != node or (trees != NULL and trees[table[at].position - base] != tree)
    ):
        at = (at + 1) & mask
    return table + at


def start(**fields) -> bool:
    """Put the seeds first, repeated ones too; False where one of them is no node."""
    cdef seeds_task s
    cdef slot_task *at
    cdef int64_t i, node
    cdef bint known = True
    fill_seeds(&s, fields)
    with nogil:
        for i in range(s.count):
            node = s.seeds[i]
            if node < 0 or node >= s.num_nodes:
                known = False
                break
            if s.table:
                at = find(s.table, s.mask, node, s.base, s.tree, s.tree[i] if s.tree else 0)
                if at.position < s.base:
                    at.node, at.position = <int32_t>node, <int32_t>(s.base + i)
            elif s.position[node] < s.base:
                s.position[node] = <int32_t>(s.base + i)
            s.node[i] = <int32_t>node
    return known


def places(**fields) -> None:
    """Where nodes stand in a batch."""
    cdef places_task s
    cdef int64_t i, node, position
    fill_places(&s, fields)
    with nogil:
        for i in range(s.count):
            node, position = s.node[i], -1
            if 0 <= node < s.num_nodes:
                position = find(s.table, s.mask, node, s.base, NULL, 0).position if s.table else s.position[node]
            s.place[i] = max(position - s.base, -1)


def count(**fields) -> int:
    """How many edges each row will have; the longest row that is drawn from, -1 for a wrong one."""
    cdef count_task s
    cdef int64_t i, begin, end, degree, size, fanout, longest = 0
    fill_count(&s, fields)
    with nogil:
        for i in range(s.count):
            if i + AHEAD < s.count:
                prefetch(s.rowptr + s.node[i + AHEAD])
            fanout, begin, end = s.fanout[i], s.rowptr[s.node[i]], s.rowptr[s.node[i] + 1]
            if begin < 0 or end < begin or end > s.num_edges:
                longest = -1
                break
            if s.time:
                end = first_later(s.time, begin, end, s.limit[s.tree[i]])
                if s.last and fanout >= 0 and end - begin > fanout:
                    begin = end - fanout
            degree = size = end - begin
            if fanout >= 0 and degree and (s.replace or degree > fanout):
                size = fanout
                if degree > longest:
                    longest = degree
            s.begin[i] = begin
            s.degree[i] = degree
            s.offset[i + 1] = s.offset[i] + size
    return longest


cdef int64_t first_later(const int64_t *time, int64_t begin, int64_t end, int64_t limit) noexcept nogil:
    cdef int64_t middle
    while begin < end:
        middle = (begin + end) // 2
        if time[middle] <= limit:
            begin = middle + 1
        else:
            end = middle
    return begin


def draw(**fields) -> int:
    """Sample the rows that were counted: 0, or 1 where one holds what is no node, 2 where all its weights are zero."""
    cdef draw_task s
    cdef int64_t begin = 0
    cdef int wrong = 0
    fill_draw(&s, fields)
    if s.weight:
        need("draw", fields, ("scratch",))
    with nogil:
        while begin < s.count:
            wrong |= draw_piece(&s, begin)
            begin += PIECE
    return 1 if wrong & 1 else wrong


cdef int draw_piece(const draw_task *s, int64_t begin) noexcept nogil:
    cdef int64_t end = begin + PIECE if begin + PIECE < s.count else s.count, i, e, node, place, strange = 0
    cdef bint drawn = True
    for i in range(begin, end):
        drawn &= draw_row(s, i)
    for e in range(s.offset[begin], s.offset[end]):
        place = s.edge[e]
        node = s.col[place] if s.col else s.wide_col[place]
        strange += node < 0 or node >= s.num_nodes
        s.row[e] = node
        if s.edge_id:
            s.edge[e] = s.edge_id[place]
    return (strange > 0) + 2 * (not drawn)


cdef bint draw_row(const draw_task *s, int64_t i) noexcept nogil:
    """Choose edges, by Floyd's method where none may be chosen twice (Bentley and Floyd 1987); False if none can be."""
    cdef int64_t begin = s.begin[i], degree = s.degree[i], size = s.offset[i + 1] - s.offset[i], k, limit
    cdef int64_t *edge = s.edge + s.offset[i]
    cdef int64_t *out_col = s.out_col + s.offset[i]
    cdef uint64_t stream = mix(<uint64_t>s.key + <uint64_t>s.stream[i]), pick, bit
    cdef bint drawn = True
    for k in range(size):
        out_col[k] = s.first + i
    if s.fanout[i] < 0 or (size == degree and not s.replace):
        for k in range(size):
            edge[k] = begin + k
        return True
    if s.weight and size:
        drawn = (draw_by_weight_again if s.replace else draw_by_weight)(s, begin, degree, size, edge, &stream)
        for k in range(size):
            fetch(s, edge[k])
        return drawn
    if s.replace:
        for k in range(size):
            edge[k] = begin + <int64_t>draw_below(&stream, degree)
            fetch(s, edge[k])
        return True
    for k in range(size):
        limit = degree - size + k
        pick = draw_below(&stream, limit + 1)
        bit = <uint64_t>1 << (pick & 63)
        if s.seen[pick >> 6] & bit:
            pick = limit
            bit = <uint64_t>1 << (pick & 63)
        s.seen[pick >> 6] |= bit
        edge[k] = begin + <int64_t>pick
        fetch(s, edge[k])
    for k in range(size):
        s.seen[(edge[k] - begin) >> 6] = 0
    return True


cdef bint draw_by_weight(
    const draw_task *s, int64_t begin, int64_t degree, int64_t size, int64_t *edge, uint64_t *stream
) noexcept nogil:
    """Choose one edge after the other by weight, none twice: the least of exponential variates at these rates.

    Once there are `size`, the weight to skip before the next lesser one is exponential too: algorithm A-ExpJ of
    Efraimidis and Spirakis 2006. The greatest of those that are kept is the root of a heap. Edges of weight zero
    come last, by their places.
    """
    cdef const double *weight = s.weight + begin
    cdef double *variate = s.scratch
    cdef double skip
    cdef int64_t k
    cdef bint drawn = False
    for k in range(size):
        edge[k] = begin + k
        variate[k] = -log(draw_unit(stream)) / weight[k] if weight[k] > 0 else INFINITY
        drawn |= weight[k] > 0
    for k in range(size // 2 - 1, -1, -1):
        sift(variate, edge, k, size)
    skip = -log(draw_unit(stream)) / variate[0]
    for k in range(size, degree):
        skip -= weight[k]
        if skip < 0 and weight[k] > 0:
            drawn = True
            edge[0] = begin + k
            variate[0] = -log1p(draw_unit(stream) * expm1(-weight[k] * variate[0])) / weight[k]
            sift(variate, edge, 0, size)
            skip = -log(draw_unit(stream)) / variate[0]
    return drawn


cdef void sift(double *variate, int64_t *edge, int64_t at, int64_t size) noexcept nogil:
    """Move what stands at a place of a heap down, to where none below it is greater."""
    cdef double moved = variate[at]
    cdef int64_t place = edge[at], below = 2 * at + 1
    while below < size:
        below += below + 1 < size and variate[below + 1] > variate[below]
        if variate[below] <= moved:
            break
        variate[at], edge[at] = variate[below], edge[below]
        at, below = below, 2 * below + 1
    variate[at], edge[at] = moved, place


cdef bint draw_by_weight_again(
    const draw_task *s, int64_t begin, int64_t degree, int64_t size, int64_t *edge, uint64_t *stream
) noexcept nogil:
    """Choose each edge by its weight, from the sums of those before."""
    cdef double total = 0, target
    cdef int64_t k, low, high, middle
    for k in range(degree):
        total += s.weight[begin + k]
        s.scratch[k] = total
    for k in range(size):
        target, low, high = draw_unit(stream) * total, 0, degree - 1
        while low < high:
            middle = (low + high) // 2
            if s.scratch[middle] < target:
                low = middle + 1
            else:
                high = middle
        edge[k] = begin + low
    return total > 0


cdef inline void fetch(const draw_task *s, int64_t place) noexcept nogil:
    if s.col:
        prefetch(s.col + place)
    else:
        prefetch(s.wide_col + place)
    if s.edge_id:
        prefetch(s.edge_id + place)


def relabel(**fields) -> int:
    """Give sources their places in the batch, new ones in the order of edges; the number of nodes that it has then."""
    cdef relabel_task s
    cdef int64_t count
    fill_relabel(&s, fields)
    with nogil:
        count = relabel_by_table(&s) if s.table else relabel_by_node(&s)
    return count


cdef int64_t relabel_by_node(const relabel_task *s) noexcept nogil:
    cdef int64_t *row = s.row
    cdef int32_t *position = s.position  # these stay in registers
    cdef int64_t e, node, place, base = s.base, count = s.count
    cdef bint new
    for e in range(s.begin, s.end):
        if e + AHEAD < s.end:
            prefetch(position + row[e + AHEAD])
        node = row[e]
        place = position[node] - base
        new = place < 0
        place = count if new else place  # written in any case: half of the branches would be guessed wrong
        position[node] = <int32_t>(base + place)
        s.node[count] = <int32_t>node
        count += new
        row[e] = place
    return count


cdef int64_t relabel_by_table(const relabel_task *s) noexcept nogil:
    cdef int64_t e, count = s.count
    cdef int32_t tree = 0
    cdef slot_task *at
    for e in range(s.begin, s.end):
        if e + AHEAD < s.end:
            if s.tree:
                tree = s.row_tree[s.out_col[e + AHEAD]]
            prefetch(s.table + (<int64_t>mix(<uint64_t>s.row[e + AHEAD] + (<uint64_t>tree << 32)) & s.mask))
        if s.tree:
            tree = s.row_tree[s.out_col[e]]
        at = find(s.table, s.mask, s.row[e], s.base, s.tree, tree)
        if at.position < s.base:
            at.node, at.position = <int32_t>s.row[e], <int32_t>(s.base + count)
            s.node[count] = at.node
            if s.tree:
                s.tree[count] = tree
            count += 1
        s.row[e] = at.position - s.base
    return count


def induce(**fields) -> int:
    """All edges between nodes of a batch, or only their number; -1 where a row reaches out of the graph."""
    cdef induce_task s
    cdef int64_t i, e, begin, end, node, place, found = 0
    cdef bint wrong = False
    fill_induce(&s, fields)
    if fields.get("row") is not None:
        need("induce", fields, ("out_col", "edge"))
    with nogil:
        for i in range(s.count):
            begin = s.rowptr[s.node[i]]
            end = s.rowptr[s.node[i] + 1]
            if begin < 0 or end < begin or end > s.num_edges:
                wrong = True
                break
            for e in range(begin, end):
                node = s.col[e] if s.col else s.wide_col[e]
                if node < 0 or node >= s.num_nodes:
                    wrong = True
                    break
                place = find(s.table, s.mask, node, s.base, NULL, 0).position if s.table else s.position[node]
                if place >= s.base:
                    if s.row and found < s.edges:
                        s.row[found], s.out_col[found] = place - s.base, i
                        s.edge[found] = s.edge_id[e] if s.edge_id else e
                    found += 1
    return -1 if wrong else found


def compress(**fields) -> bool:
    """The edges of a batch in rows, and in those of the transpose; False where one of them is out of place.

    Edges come in rows already, so that counting puts the transpose in order, and then the columns of its transpose,
    which are the sorted rows: nothing is compared.
    """
    cdef compress_task s
    cdef int64_t e, node, at, before = 0
    cdef bint right = True
    fill_compress(&s, fields)
    with nogil:
        memset(s.rowptr, 0, (s.rows + 1) * sizeof(int64_t))
        memset(s.turned_rowptr, 0, (s.cols + 1) * sizeof(int64_t))
        for e in range(s.edges):
            if s.row[e] < 0 or s.row[e] >= s.cols or s.place[e] < before or s.place[e] >= s.rows:
                right = False
                break
            before = s.place[e]
            s.rowptr[s.place[e] + 1] += 1
            s.turned_rowptr[s.row[e] + 1] += 1
        if right:
            for node in range(s.rows):
                s.rowptr[node + 1] += s.rowptr[node]
            for node in range(s.cols):
                s.turned_rowptr[node + 1] += s.turned_rowptr[node]
            memcpy(s.cursor, s.turned_rowptr, s.cols * sizeof(int64_t))
            for e in range(s.edges):
                at = s.cursor[s.row[e]]
                s.cursor[s.row[e]] += 1
                s.turned_col[at] = <int32_t>s.place[e]
            memcpy(s.cursor, s.rowptr, s.rows * sizeof(int64_t))
            for node in range(s.cols):
                for e in range(s.turned_rowptr[node], s.turned_rowptr[node + 1]):
                    at = s.cursor[s.turned_col[e]]
                    s.cursor[s.turned_col[e]] += 1
                    s.col[at] = <int32_t>node
                    s.perm[e] = <int32_t>at
    return right
