# cython: language_level=3, boundscheck=False, wraparound=False
"""Fused attention, by the fields of `struct attention`; a pass of a family over the rows of the graph or its transpose."""

include "record.pxi"
include "rows.pxi"
include "attention_fields.pxi"

cdef extern from "attention.h":
    struct passes:
        const char *family
        kernel_table forward, grad_query, grad_key
    passes *families
    const int family_count
    kernel_table terms_kernels
    const int CHUNK

FAMILIES = [families[k].family.decode() for k in range(family_count)]

# Each pass takes the family, the fewest elements that a row of any tensor has, the instruction set and threads.


def forward(str family, int64_t shortest, int isa, int threads, **fields):
    need("attention", fields, ("col", "out", "stats"))
    run(families[<int>FAMILIES.index(family)].forward, shortest, isa, threads, fields)


def terms(str family, int64_t shortest, int isa, int threads, **fields):
    """Compute what passes over edges read of destinations, and where it follows, the gradient of query."""
    need("attention", fields, ("grad_out", "out", "stats", "grad", "node"))
    if fields.get("out_positive") is not None:
        need("attention", fields, ("alpha_positive", "grad_query"))
    run(terms_kernels, shortest, isa, threads, fields)


def grad_query(str family, int64_t shortest, int isa, int threads, **fields):
    need("attention", fields, ("col", "grad", "node", "grad_mine"))
    run(families[<int>FAMILIES.index(family)].grad_query, shortest, isa, threads, fields)


def grad_key(str family, int64_t shortest, int isa, int threads, **fields):
    """Run over the transpose, with its edges' own numbers where dropout draws by them."""
    need("attention", fields, ("col", "grad", "node", "grad_mine", "grad_value"))
    run(families[<int>FAMILIES.index(family)].grad_key, shortest, isa, threads, fields)


cdef run(kernel_table table, int64_t shortest, int isa, int threads, dict fields):
    cdef attention_task task
    cdef bint is_double = fill_attention(&task, fields)
    if not 0 < task.chunk <= CHUNK:
        raise ValueError(f"attention: chunk is {task.chunk}, but must be from 1 to {CHUNK}")
    with nogil:
        run_team(kernel_for(table, isa, is_double, shortest), &task, task.rowptr, task.walked, threads)
