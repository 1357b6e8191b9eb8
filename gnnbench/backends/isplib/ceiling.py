"""Gathering of cache lines and nothing else, by `cython_kernels/ceiling.pyx`; no kernel over edges is faster."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled

native = _compiled.load("ceiling")

LINE_FLOATS = 16  # of a cache line


def gather(table: Tensor, line: Tensor) -> Tensor:
    """Add the rows of table [L, 16] float32 that line [T, K] int32 names, on T threads; sums [T, 16]."""
    sums = torch.empty(len(line), LINE_FLOATS)
    sizes = dict(zip(("threads", "share"), line.shape, strict=True))
    native.gather(
        _compiled.vectors(_compiled.isa_level()), table=table, line=line, sums=sums, lines=len(table), **sizes
    )
    return sums
