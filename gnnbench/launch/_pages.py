"""Pages of libraries, which Linux does not map into a child when it forks it, unless they were written.

A child would map them when it first uses them, and its first epochs would seem to need that memory.
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress

import numpy as np

MADV_POPULATE_READ = 22  # of Linux 5.14; an older one leaves everything as it is


def mapped() -> list[tuple[int, int]]:
    """Address and bytes of every run of read-only pages of files that are mapped now; none if hidden."""
    runs: list[tuple[int, int]] = []
    with suppress(OSError), open("/proc/self/maps") as areas, open("/proc/self/pagemap", "rb") as pagemap:
        for area in areas:
            addresses, rights, _, _, inode = area.split()[:5]
            if "w" in rights or inode == "0":
                continue
            start, end = (int(address, 16) // mmap.PAGESIZE for address in addresses.split("-"))
            pagemap.seek(8 * start)
            present = np.frombuffer(pagemap.read(8 * (end - start)), np.uint64) >> np.uint64(63)
            edges = np.flatnonzero(np.diff(present.astype(np.int8), prepend=0, append=0)) + start
            for first, last in edges.reshape(-1, 2).tolist():
                runs.append((first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE))
    return runs


def map_in(runs: list[tuple[int, int]]) -> None:
    """Map these pages into this process."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for address, size in runs:
        madvise(address, size, MADV_POPULATE_READ)
