# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sparse-dense products, by the fields of structs in `spmm.h`."""

include "record.pxi"
include "rows.pxi"
include "spmm_fields.pxi"

cdef extern from "spmm.h":
    ctypedef kernel_fn *longest_table[3][2]
    kernel_table spmm_sum_kernels, spmm_extremum_kernels
    longest_table spmm_look_kernels, bf16_pack_kernels, bf16_sum_kernels
    longest_table blocked_order_kernels, blocked_pack_kernels, blocked_sum_kernels, blocked_extremum_kernels

ctypedef fused real:
    float
    double

Tensor, Parameter, is_grad_enabled = torch.Tensor, torch.nn.Parameter, torch.is_grad_enabled

cdef enum:
    LONG = 64  # edges of a source from which on looking at all of them first pays


cdef class Sum:
    """A sum row by row that has run, for `again`."""

    cdef spmm_task task
    cdef View inputs[5]  # x, value, of_source, scale, bias
    cdef kernel_fn *kernel
    cdef int isa, threads, most  # that it runs on, and that there were to choose from
    cdef object shape, key, tuned


cdef int look_if(object value, View *v) except -1:
    """Look at a tensor that may be missing, which then has neither elements nor dimensions."""
    memset(v, 0, sizeof(v[0]))
    return 0 if value is None else look(value, v)


cdef bint is_plain(object value, View *v) except -1:
    """Look at a tensor that may be missing; whether torch would do nothing with it beside what kernels do."""
    if value is not None and type(value) is not Tensor and type(value) is not Parameter:
        return False
    try:
        look_if(value, v)
    except Exception:  # such as of a tensor without memory
        return False
    return value is None or (v.fits and not (value.requires_grad and is_grad_enabled()))


cdef bint is_like(const View *one, const View *other):
    return (
        one.type == other.type and one.ndim == other.ndim and one.first == other.first and one.count == other.count
    )


def sum(way, int isa, **fields):
    """Sum row by row, as a `Way` says; what is returned lets `again` do so on other tensors."""
    cdef Sum made = Sum()
    cdef int k
    cdef bint is_double = fill_spmm(&made.task, fields)
    for k, name in enumerate(("x", "value", "of_source", "scale", "bias")):
        look_if(fields.get(name), &made.inputs[k])
    made.kernel = kernel_for(spmm_sum_kernels, isa, is_double, made.task.width)
    made.isa, made.threads, made.most = isa, way.threads, way.most
    made.shape, made.key, made.tuned = way.shape, way.key, way.tuned
    run_sum(made, &made.task)
    return made


def again(list known, dict tuned, int isa, int threads, bint mean, tuple inputs):
    """Sum (x, value, of_source, scale, bias) as that of `known` did whose tensors were like these; None without one.

    All of `known` are over one graph, which is there and unchanged.

    Over a small graph, it takes less time to sum than to find out how, to fill in a task and to check it. None too
    where a tensor learns.
    """
    cdef spmm_task task
    cdef View seen[5]
    cdef View of_out
    cdef Sum each
    cdef int k
    for k in range(5):
        if not is_plain(inputs[k], &seen[k]):
            return None
    for each in known:
        if (
            each.isa == isa
            and each.most == threads
            and each.task.mean == mean
            and is_like(&seen[0], &each.inputs[0])
            and is_like(&seen[1], &each.inputs[1])
            and is_like(&seen[2], &each.inputs[2])
            and is_like(&seen[3], &each.inputs[3])
            and is_like(&seen[4], &each.inputs[4])
            and tuned.get(each.key) is each.tuned
        ):
            out = inputs[0].new_empty(*each.shape)
            look(out, &of_out)
            task = each.task
            task.x, task.value, task.of_source = seen[0].data, seen[1].data, seen[2].data
            task.scale, task.bias = seen[3].data, seen[4].data
            task.out = of_out.data
            run_sum(each, &task)
            return out
    return None


cdef run_sum(Sum sum, const spmm_task *task):
    with nogil:
        run_team(sum.kernel, task, task.rowptr, task.rows, sum.threads)


def bf16_sum(int isa, int threads, **fields):
    cdef spmm_task task
    cdef bint is_double = fill_spmm(&task, fields)
    cdef int piece
    need("spmm", fields, ("packed",))
    if is_double:
        raise ValueError("spmm: x is torch.float64, but sums in bfloat16 are of torch.float32")
    with nogil:
        for piece in prange(threads, num_threads=threads, schedule="static"):
            bf16_pack_kernels[isa][is_double](&task, task.cols * piece // threads, task.cols * (piece + 1) // threads)
        run_team(bf16_sum_kernels[isa][is_double], &task, task.rowptr, task.rows, threads)


def count(int threads, **fields):
    """Fill `start` of a plan, given as zeros; how many groups there are."""
    cdef blocked_task task
    cdef int32_t total = 0, groups
    cdef int64_t row, at
    fill_blocked(&task, fields)
    with nogil:
        for row in prange(task.rows, num_threads=threads, schedule="dynamic", chunksize=512):
            count_edges(&task, row)
        for at in range(task.blocks * (task.rows + 1)):
            groups = <int32_t>((task.start[at] + task.group - 1) // task.group)
            task.start[at] = total
            total += groups
    return total


def place(int threads, **fields):
    """Fill `local` of a plan."""
    cdef blocked_task task
    cdef int64_t row
    fill_blocked(&task, fields)
    need("blocked", fields, ("local",))
    with nogil:
        for row in prange(task.rows, num_threads=threads, schedule="dynamic", chunksize=512):
            place_edges(&task, row)


cdef void count_edges(const blocked_task *s, int64_t row) noexcept nogil:
    cdef int64_t e
    for e in range(s.rowptr[row], s.rowptr[row + 1]):
        s.start[(s.col[e] >> s.shift) * (s.rows + 1) + row] += 1


cdef void place_edges(const blocked_task *s, int64_t row) noexcept nogil:
    cdef int64_t e, block = -1, at = 0
    for e in range(s.rowptr[row], s.rowptr[row + 1]):
        if s.col[e] >> s.shift != block:
            fill_group(s, at)
            block = s.col[e] >> s.shift
            at = s.start[block * (s.rows + 1) + row] * s.group
        s.local[at] = <uint16_t>((s.col[e] & ((1 << s.shift) - 1)) + 1)
        at += 1
    fill_group(s, at)


cdef void fill_group(const blocked_task *s, int64_t at) noexcept nogil:
    while at % s.group:
        s.local[at] = 0
        at += 1


def order(int isa, int threads, **fields):
    """Bring edge weights into the order of a plan; whether none is NaN or infinite."""
    cdef blocked_task task
    cdef int32_t finite = 1
    cdef bint is_double = fill_blocked(&task, fields)
    need("blocked", fields, ("local", "value", "ordered"))
    task.finite = &finite
    with nogil:
        run_rows(blocked_order_kernels[isa][is_double], &task, task.rowptr, task.rows, 1, threads)
    return bool(finite)


def blocked_sum(int isa, int threads, **fields):
    run_tiles(blocked_sum_kernels, 2, False, isa, threads, fields)


def blocked_extremum(int isa, int threads, **fields):
    need("blocked", fields, ("origin", "seen", "arg_out"))
    run_tiles(blocked_extremum_kernels, 2 if isa else 1, True, isa, threads, fields)


cdef run_tiles(longest_table table, int lines, bint watch, int isa, int threads, dict fields):
    # A line holds `tile` columns; up to `lines` of them are walked at once.
    # Each thread walks all its rows per block, so that a block's features are fetched once per thread.
    cdef blocked_task task
    cdef bint is_double = fill_blocked(&task, fields)
    cdef kernel_fn *pack = blocked_pack_kernels[isa][is_double]
    cdef kernel_fn *gather = table[isa][is_double]
    cdef int piece, tile
    cdef int32_t finite
    need("blocked", fields, ("local", "x", "packed", "sums", "out"))
    task.finite = &finite if watch else NULL
    tile = 8 if is_double else 32 if task.bf16 else 16
    with nogil:
        while task.column < task.width:
            finite = task.finite_value
            task.lines = lines if task.width - task.column > tile else 1
            for piece in prange(threads, num_threads=threads, schedule="static"):
                pack(&task, task.cols * piece // threads, task.cols * (piece + 1) // threads)
            for piece in prange(threads, num_threads=threads, schedule="static"):
                gather(&task, split_rows(task.rowptr, task.rows, piece, threads),
                       split_rows(task.rowptr, task.rows, piece + 1, threads))
            task.column += task.lines * tile


def extremum(int isa, int threads, **fields):
    cdef spmm_task task
    cdef bint is_double = fill_spmm(&task, fields)
    cdef int32_t finite
    cdef int piece
    need("spmm", fields, ("arg_out",))
    finite = not task.value and task.rowptr[task.rows] >= LONG * task.cols
    task.finite = &finite
    with nogil:
        if finite:
            for piece in prange(threads, num_threads=threads, schedule="static"):
                spmm_look_kernels[isa][is_double](&task, task.cols * piece // threads,
                                                  task.cols * (piece + 1) // threads)
        run_team(kernel_for(spmm_extremum_kernels, isa, is_double, task.width), &task, task.rowptr, task.rows, threads)


def extremum_backward(int threads, **fields):
    # A piece owns a range of sources and whole cache lines of their columns, so no two threads add to one place.
    cdef scattered_task task
    cdef bint is_double = fill_scattered(&task, fields)
    cdef int pieces = threads if task.rows * task.width > 1 << 14 else 1, piece
    cdef int64_t strips = max(1, min(pieces, task.width // 16)), ranges = pieces // strips
    with nogil:
        for piece in prange(<int>(strips * ranges), num_threads=pieces, schedule="static"):
            if is_double:
                scatter(&task, <double *>task.grad_x, piece % strips, strips, piece // strips, ranges)
            else:
                scatter(&task, <float *>task.grad_x, piece % strips, strips, piece // strips, ranges)


cdef void scatter(const scattered_task *s, real *grad_x, int64_t strip, int64_t strips, int64_t range_,
                  int64_t ranges) noexcept nogil:
    cdef const real *value = <const real *>s.value
    cdef const real *grad_out = <const real *>s.grad_out
    cdef int64_t row, k, edge, begin = s.width * strip // strips, end = s.width * (strip + 1) // strips
    cdef int64_t first = s.cols * range_ // ranges, last = s.cols * (range_ + 1) // ranges
    for row in range(s.rows):
        for k in range(row * s.width + begin, row * s.width + end):
            edge = s.arg_out[k]
            if edge >= 0 and first <= s.col[edge] < last:
                grad_x[s.col[edge] * s.width + k - row * s.width] += grad_out[k] * (value[edge] if value else 1)
