"""Segments of edges, the tile that a program holds, limits that all kernels share, and how a kernel is started."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from gnnbench.backends.cuda._triton import INTERPRETED, constexpr, jit, tensor, tl
from gnnbench.graph import Graph
from gnnbench.graph.layout import MAX_INT32
from gnnbench.ops.kernels import Kernels

SLICE_EDGES = 1024  # of a row, above which it is cut
LEAST_SLICE = 256  # of edges, fewer than which do not repay starting two more kernels
WARP_ELEMENTS = 1024  # of a tile that holds one number for each, 32 to a lane
PROGRAMS = 4096  # which keep a GPU busy: below it a program takes one row


@dataclass(frozen=True)
class Segments:
    """Segment s is of the edges begin[s]:end[s], if they are not more than `longest`, and belongs to row[s]."""

    begin: Tensor  # [S] int64
    end: Tensor  # [S] int64
    row: Tensor | None = None  # [S] int64; None where it is s itself
    longest: int = MAX_INT32

    @property
    def count(self) -> int:
        return self.begin.numel()

    @property
    def apart(self) -> Segments:
        """Return these segments, each belonging to itself: what kernels make of them are partial results."""
        return replace(self, row=None)


class Hubs(NamedTuple):
    """The rows with many edges, and their slices in the order of rows and edges."""

    slices: Segments  # of edges
    begin: Tensor  # [S] int64: slices begin[s]:end[s] are of the same row as slice s
    end: Tensor
    rows: Segments  # of slices

    def partial(self, like: Tensor) -> Tensor:
        """An empty tensor for what kernels make of slices, where `like` is for that of rows."""
        return like.new_empty(self.slices.count, *like.shape[1:], dtype=sums_in(like.dtype))


def rows(graph: Graph, longest: int) -> Segments:
    """Every row that has at most `longest` edges."""
    return Segments(graph.rowptr[:-1], graph.rowptr[1:], None, longest)


def longest_row(graph: Graph) -> int:
    """Edges of the row that has most; the device is asked once."""
    return graph.once("longest", lambda: int(graph.degree.max()) if graph.num_rows else 0)


def hubs(graph: Graph, longest: int) -> Hubs | None:
    """Return the other rows, in slices of `longest` edges; made once; None if there is none."""
    return graph.once(("hubs", longest), lambda: _hubs(graph, longest))


def _hubs(graph: Graph, longest: int) -> Hubs | None:
    hub = (graph.degree > longest).nonzero().flatten()
    if not hub.numel():
        return None
    counts = (graph.degree[hub] + longest - 1) // longest
    last = counts.cumsum(0)
    row, begin, end = (tensor.repeat_interleave(counts) for tensor in (hub, last - counts, last))
    first_edge = graph.rowptr[row] + (torch.arange(row.numel(), device=row.device) - begin) * longest
    last_edge = torch.minimum(first_edge + longest, graph.rowptr[row + 1])
    return Hubs(Segments(first_edge, last_edge, row), begin, end, Segments(last - counts, last, hub))


@jit
def segments_of(
    begin: tensor, end: tensor, row: tensor, count: tensor, longest: tensor, BLOCK_S: constexpr
) -> tensor:
    """Load this program's segments: first edge, number of edges and row [BLOCK_S], and which there are."""
    segment = tl.program_id(0).to(tl.int64) * BLOCK_S + tl.arange(0, BLOCK_S)
    first = tl.load(begin + segment, segment < count, 0)
    length = tl.load(end + segment, segment < count, 0) - first
    mine = (segment < count) & (length <= longest)
    if row is not None:
        segment = tl.load(row + segment, mine, 0)
    return first, tl.where(mine, length, 0), segment, mine


@jit
def edges_of(first: tensor, length: tensor, chunk: tensor, BLOCK_E: constexpr) -> tensor:
    """The edges of every segment from first + chunk on [BLOCK_S, BLOCK_E], and which there are."""
    place = chunk + tl.arange(0, BLOCK_E)
    return first[:, None] + place[None, :], place[None, :] < length[:, None]


@jit
def ends(col: tensor, edge: tensor, live: tensor) -> tensor:
    """The node at the other end of every edge; without `col`, the edge itself."""
    node = edge
    if col is not None:
        node = tl.load(col + edge, live, 0).to(tl.int64)
    return node


@dataclass(frozen=True)
class Tile:
    """How many of each a program holds, all powers of two, of the heads and channels in `shape`; and its warps."""

    shape: tuple[int, int]
    segments: int
    edges: int
    heads: int
    channels: int
    num_warps: int

    def constants(self, axes: str = "SEHC") -> dict[str, int]:
        """Return those of a kernel whose tiles have these axes."""
        sizes = dict(zip("HC", self.shape, strict=True))
        blocks = {"S": self.segments, "E": self.edges, "H": self.heads, "C": self.channels}
        constants = {axis: sizes[axis] for axis in axes if axis in sizes}
        return constants | {f"BLOCK_{axis}": blocks[axis] for axis in axes} | {"num_warps": self.num_warps}

    def launch(
        self, kernel: Any, segments: Segments, dtype: torch.dtype, *args: Any, axes: str = "SEHC", **own: Any
    ) -> None:
        """Launch a kernel over `segments` and tiles of heads and channels; elements of `dtype` are accumulated."""
        heads, channels = self.shape
        grid = -(-segments.count // self.segments), -(-heads // self.heads) * -(-channels // self.channels)
        launch(kernel, grid, segments, *args, ACC=acc_type(dtype), **self.constants(axes), **own)


def fit(graph: Graph, heads: int, channels: int, elements: int, *, widest: int = 128, num_warps: int = 1) -> Tile:
    """A tile of about `elements`, given to channels first, then to heads, to edges of a row, and to rows.

    Small graphs get a row to a program and many edges at a time: their time is that of the longest row.

    Args:
        widest: channels of a head at most.
    """
    block_c = min(power_of_two(channels), widest)
    block_h = min(power_of_two(heads), max(elements // 4 // block_c, 1))
    room = max(elements // (block_h * block_c), 1)
    together = min(1 << max(graph.num_rows // PROGRAMS, 1).bit_length() - 1, 8)
    block_e = min(room, max(power_of_two(mean_degree(graph)), room // together))
    shape = heads, channels
    return Tile(shape, min(room // block_e, together), block_e, block_h, block_c, num_warps)


def mean_degree(graph: Graph) -> int:
    """Edges of a row on average, rounded down."""
    return graph.num_edges // max(graph.num_rows, 1)


def power_of_two(count: int) -> int:
    """The least power of two that is not below `count`."""
    return 1 << max(count - 1, 0).bit_length()


class BaseKernels(Kernels):
    """Plain-torch kernels that know how Triton's are to be run.

    Args:
        slice_edges: rows with more edges are cut into slices of so many, which run as rows of their own; earlier
            where most rows are much shorter.
    """

    types: ClassVar[tuple[torch.dtype, ...]] = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    narrow: ClassVar[tuple[torch.dtype, ...]] = types[2:]
    device_type: ClassVar[str] = "cpu" if INTERPRETED else "cuda"
    chunk_bytes: ClassVar[int] = 32 << 20  # starting a kernel costs more than leaving the cache

    def __init__(self, slice_edges: int = SLICE_EDGES) -> None:
        self.slice_edges = slice_edges

    def longest(self, graph: Graph) -> int:
        """Edges of a row above which it is cut: a few times those of most rows, lest all wait for one."""
        return min(self.slice_edges, max(4 * mean_degree(graph), LEAST_SLICE))


def sums_in(dtype: torch.dtype) -> torch.dtype:
    """The type in which elements of type `dtype` are accumulated."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def acc_type(dtype: torch.dtype) -> Any:
    """Triton's name of that type."""
    return getattr(tl, str(sums_in(dtype)).removeprefix("torch."))


def start(kernel: Any, grid: tuple[int, ...], *args: Any, num_warps: int, **constants: Any) -> None:
    """Start `kernel` on the current stream of its first tensor's device; an empty grid starts nothing."""
    if all(grid):
        with torch.cuda.device_of(args[0]):
            kernel[grid](*args, num_warps=num_warps, enable_fp_fusion=True, **constants)


def launch(kernel: Any, grid: tuple[int, ...], segments: Segments, *args: Any, **constants: Any) -> None:
    """Launch a kernel over `segments`."""
    where = segments.begin, segments.end, segments.row, segments.count, segments.longest
    start(kernel, grid, *where, *args, **constants)
