"""Memory that is not faulted in again: what malloc does with what a program gives back."""

from __future__ import annotations

import ctypes
import os

# Of mallopt(3).
TRIM_THRESHOLD, MMAP_MAX = -1, -4
CHOSEN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES", "LD_PRELOAD")


def keep_freed() -> bool:
    """Let glibc's malloc keep what is freed from now on.

    Returns:
        Whether it does: not under another allocator, nor where the user has chosen.

    By default it maps every large tensor anew, and each page of it is faulted in and zeroed again, which can take
    longer than the work on it. In return memory may lie idle between tensors of different sizes.
    """
    if any(os.environ.get(name) for name in CHOSEN):
        return False
    try:
        libc = ctypes.CDLL(None)
        return bool(libc.mallopt(MMAP_MAX, 0) and libc.mallopt(TRIM_THRESHOLD, 2**31 - 1))
    except (OSError, TypeError, AttributeError):  # another C library
        return False
