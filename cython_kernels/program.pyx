# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Programs over edges, by the fields of `struct program` and those of their leaves and sinks."""
from libc.stdlib cimport free, malloc

include "record.pxi"
include "rows.pxi"
include "program_fields.pxi"

cdef extern from "program.h":
    kernel_table program_kernels

# By the numbers that they have there.
OPS = (
    "add", "sub", "mul", "div", "equal", "scale", "shift", "exp", "sigmoid", "tanh", "softplus", "relu", "leaky_relu",
    "slope", "total", "spread",
)
PLACES = ("source", "destination", "edge")
REDUCTIONS = ("sum", "min", "max")


def run(int isa, int threads, list leaves, list sinks, **fields):
    """Run a program; `leaves` and `sinks` have the fields of these."""
    cdef program_task task
    cdef bint is_double = False
    cdef int k
    cdef int64_t failed = 0
    cdef leaf_task *leaf = <leaf_task *>malloc(len(leaves) * sizeof(leaf_task) + 1)
    cdef sink_task *sink = <sink_task *>malloc(len(sinks) * sizeof(sink_task) + 1)
    try:
        fill_program(&task, {**fields, "leaves": len(leaves), "sinks": len(sinks)})
        for k, each in enumerate(leaves):
            is_double = same(k, is_double, fill_leaf(&leaf[k], each))
        for k, each in enumerate(sinks):
            is_double = same(len(leaves) + k, is_double, fill_sink(&sink[k], each))
        task.leaf, task.sink, task.failed = leaf, sink, &failed
        check(&task)
        with nogil:
            run_rows(kernel_for(program_kernels, isa, is_double, task.heads * task.width), &task, task.rowptr,
                     task.rows, task.heads * task.width * (1 + task.steps), threads)
        if failed:
            raise MemoryError("program: no memory for its registers")
    finally:
        free(leaf)
        free(sink)


cdef bint same(int k, bint before, bint now) except? -1:
    if k and before != now:
        raise ValueError("program: x of its leaves and out of its sinks are of different types")
    return now


cdef int check(program_task *p) except -1:
    """Refuse registers that are not there, and widths that do not fit."""
    cdef int64_t k, narrow = p.heads, wide = p.heads * p.width
    for k in range(p.leaves):
        if p.leaf[k].width not in (narrow, wide):
            raise ValueError(f"program: leaf {k} has width {p.leaf[k].width}, which is not {narrow} or {wide}")
    for k in range(p.steps):
        if not (0 <= p.code[4 * k] < len(OPS) and 0 <= p.code[4 * k + 1] < p.leaves + k
                and 0 <= p.code[4 * k + 2] < p.leaves + k and p.code[4 * k + 3] in (narrow, wide)):
            raise ValueError(f"program: step {k} reads a register that is not there, or is no operation")
    for k in range(p.sinks):
        if not (0 <= p.sink[k].value < p.leaves + p.steps and p.sink[k].width == width_of(p, p.sink[k].value)):
            raise ValueError(f"program: sink {k} is of a register that is not there, or of another width")
    return 0


cdef int64_t width_of(program_task *p, int64_t register):
    return p.leaf[register].width if register < p.leaves else p.code[4 * (register - p.leaves) + 3]
