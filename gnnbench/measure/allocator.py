"""Memory that is not faulted in again: what malloc does with what a program gives back."""

from __future__ import annotations

import ctypes
import os
import sys

# Of mallopt(3).
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
CHOSEN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")


def keep_freed() -> bool:
    """Let glibc's malloc keep freed memory for the next allocation, from now on; whether it does.

    By default every large tensor is mapped anew and each of its pages is faulted in and zeroed again, which can
    take longer than the work on it. Left as it is under another allocator and where the user has chosen.
    """
    if sys.platform != "linux" or any(os.environ.get(name) for name in CHOSEN):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    largest = 2**31 - 1
    return bool(mallopt(MMAP_MAX, 0) and mallopt(TRIM_THRESHOLD, largest))
