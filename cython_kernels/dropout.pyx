# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Dropout, by the fields of `struct dropout`."""

from cython.parallel cimport prange

include "record.pxi"
include "dropout_fields.pxi"

cdef extern from "dropout.h":
    ctypedef void kernel_fn(const void *task, int64_t begin, int64_t end) noexcept nogil
    kernel_fn *dropout_kernels[3][2]
    const int PIECE


def dropout(int isa, int threads, **fields):
    cdef dropout_task task
    cdef int64_t piece, pieces, part
    cdef kernel_fn *kernel = dropout_kernels[isa][fill_dropout(&task, fields)]
    piece = task.first // PIECE
    pieces = (task.first + task.count + PIECE - 1) // PIECE - piece
    with nogil:
        if threads == 1 or pieces < 8:  # small work is not worth a team
            kernel(&task, piece, piece + pieces)
        else:
            for part in prange(8 * threads, num_threads=threads, schedule="dynamic", chunksize=1):
                kernel(&task, piece + pieces * part // (8 * threads), piece + pieces * (part + 1) // (8 * threads))
