"""Memory to work in, kept with the graph: fresh pages would cost as much as the sum over small rows itself."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from gnnbench.backends.isplib.choices import LINE_BYTES
from gnnbench.graph import Graph

HUGE_PAGE = 1 << 21
MAPPED = 32 << 20  # bytes from which on glibc maps every tensor by itself, and unmaps it
MADV_HUGEPAGE = 14  # of madvise(2)


@contextmanager
def workspace(graph: Graph, *lines: int) -> Iterator[list[Tensor]]:
    """Lend that many cache lines each, [lines, 16] float32, of unknown contents, for one call.

    One workspace stays with the graph; of several threads at once, all but one get new memory.
    """
    kept: list[Tensor] = graph.cache.setdefault("workspace", [])
    try:
        whole = kept.pop()
    except IndexError:
        whole = torch.empty(0, LINE_BYTES // 4)
    if len(whole) < sum(lines):
        whole = _allocated(sum(lines))
    yield list(whole[: sum(lines)].split(list(lines)))
    if not kept:
        kept.append(whole)


@torch.inference_mode(False)
def _allocated(lines: int) -> Tensor:
    return in_huge_pages(torch.empty(lines, LINE_BYTES // 4), least=HUGE_PAGE)


def in_huge_pages(tensor: Tensor, least: int = MAPPED) -> Tensor:
    """A new tensor whose memory is faulted in 2 MiB at a time, if it has `least` bytes and the system lets it.

    In small pages, that takes longer than a sum over short rows. Tensors below `MAPPED` often come from memory
    that is there already, whose pages are better left as they are.
    """
    if tensor.nbytes < least:
        return tensor
    begin = -(-tensor.data_ptr() // HUGE_PAGE) * HUGE_PAGE
    size = (tensor.data_ptr() + tensor.nbytes - begin) // HUGE_PAGE * HUGE_PAGE
    if size > 0 and (madvise := _madvise()):
        madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), MADV_HUGEPAGE)  # which may decline
    return tensor


@cache
def _madvise() -> Any:
    return getattr(ctypes.CDLL(None), "madvise", None)
