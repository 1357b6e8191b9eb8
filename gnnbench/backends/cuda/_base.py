"""Limits that the kernels of every family share, and how a kernel is started."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from gnnbench.backends.cuda._tile import mean_degree
from gnnbench.backends.cuda._triton import INTERPRETED, tl
from gnnbench.backends.cuda.plan import Segments
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels

SLICE_EDGES = 1024  # of a row, above which it is cut
LEAST_SLICE = 256  # of edges, fewer than which do not repay starting two more kernels
NARROW = (torch.bfloat16, torch.float16)
DTYPES = (torch.float32, torch.float64, *NARROW)


class BaseKernels(Kernels):
    """Plain-torch kernels that know how Triton's are to be run.

    Args:
        slice_edges: rows with more edges are cut into slices of so many, which run as rows of their own; earlier
            where most rows are much shorter.
    """

    narrow: ClassVar[tuple[torch.dtype, ...]] = NARROW
    device_type: ClassVar[str] = "cpu" if INTERPRETED else "cuda"
    chunk_bytes: ClassVar[int] = 32 << 20  # starting a kernel costs more than leaving the cache

    def __init__(self, slice_edges: int = SLICE_EDGES) -> None:
        self.slice_edges = slice_edges

    def longest(self, graph: Graph) -> int:
        """Edges of a row above which it is cut: a few times those of most rows, lest all wait for one."""
        return min(self.slice_edges, max(4 * mean_degree(graph), LEAST_SLICE))

    def unsupported(self, op: str, graph: Graph, *tensors: Tensor | None) -> list[str]:
        reasons = []
        for tensor in tensors:
            if tensor is not None and tensor.device.type != self.device_type:
                reasons.append(f"a tensor is on {tensor.device}; these kernels run on {self.device_type} tensors")
            elif tensor is not None and tensor.dtype not in DTYPES:
                reasons.append(f"a tensor has type {tensor.dtype}; cuda computes in {', '.join(map(str, DTYPES))}")
        return reasons


def sums_in(dtype: torch.dtype) -> torch.dtype:
    """The type in which elements of type `dtype` are accumulated."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def triton_type(dtype: torch.dtype) -> Any:
    """Return Triton's type for a torch dtype."""
    return getattr(tl, str(dtype).removeprefix("torch."))


def start(kernel: Any, grid: tuple[int, ...], *args: Any, num_warps: int, **constants: Any) -> None:
    """Start `kernel` on the current stream of its first tensor's device; an empty grid starts nothing."""
    if all(grid):
        with torch.cuda.device_of(args[0]):
            kernel[grid](*args, num_warps=num_warps, enable_fp_fusion=True, **constants)


def launch(kernel: Any, grid: tuple[int, ...], segments: Segments, *args: Any, **constants: Any) -> None:
    """Launch a kernel over `segments`."""
    where = segments.begin, segments.end, segments.row, segments.count, segments.longest
    start(kernel, grid, *where, *args, **constants)
