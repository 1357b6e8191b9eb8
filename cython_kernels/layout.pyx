# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sorting of edges into rows; `gnnbench.backends.isplib` has checked every index, so addresses are trusted here."""

cdef extern from "kernel.h":
    int isa_highest() noexcept nogil
cdef extern from *:
    """
    #ifdef _OPENMP
    #include <omp.h>
    #define OPENMP_VERSION _OPENMP
    #else
    #define OPENMP_VERSION 0
    #endif
    """
    const int OPENMP_VERSION


def highest_isa() -> int:
    """0 baseline, 1 AVX2, 2 AVX-512."""
    return isa_highest()


def openmp_version() -> int:
    """The `_OPENMP` date the kernels were compiled with, 0 without OpenMP."""
    return OPENMP_VERSION
