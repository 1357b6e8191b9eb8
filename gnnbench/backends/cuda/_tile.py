"""The tile that a program holds: some edges of some segments, and some channels of some heads."""

from __future__ import annotations

from dataclasses import dataclass

from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.graph import Graph

WARP_ELEMENTS = 1024  # of a tile that holds one number for each, 32 to a lane
PROGRAMS = 4096  # which keep a GPU busy: below it a program takes one row


@jit
def segments_of(
    begin: tensor, end: tensor, row: tensor, count: tensor, longest: tensor, BLOCK_S: constexpr
) -> tensor:
    """This program's segments: first edge, number of edges and row [BLOCK_S], and which there are."""
    segment = tl.program_id(0).to(tl.int64) * BLOCK_S + tl.arange(0, BLOCK_S)
    first = tl.load(begin + segment, segment < count, 0)
    length = tl.load(end + segment, segment < count, 0) - first
    mine = (segment < count) & (length <= longest)
    if row is not None:
        segment = tl.load(row + segment, mine, 0)
    return first, tl.where(mine, length, 0), segment, mine


@jit
def channels_of(H: constexpr, C: constexpr, BLOCK_H: constexpr, BLOCK_C: constexpr) -> tensor:
    """This program's heads [BLOCK_H], places in [H, C] and which there are [BLOCK_H, BLOCK_C]."""
    TILES: constexpr = (C + BLOCK_C - 1) // BLOCK_C
    h = tl.program_id(1) // TILES * BLOCK_H + tl.arange(0, BLOCK_H)
    c = tl.program_id(1) % TILES * BLOCK_C + tl.arange(0, BLOCK_C)
    return h, h[:, None] * C + c[None, :], (h < H)[:, None] & (c < C)[None, :]


@dataclass(frozen=True)
class Tile:
    """How many of each, all powers of two, and the warps of a program."""

    segments: int
    edges: int
    heads: int
    channels: int
    num_warps: int

    def grid(self, count: int, heads: int, channels: int) -> tuple[int, int]:
        """Programs over `count` segments, and over tiles of channels."""
        return -(-count // self.segments), -(-heads // self.heads) * -(-channels // self.channels)

    def blocks(self, axes: str = "SEHC") -> dict[str, int]:
        """The constants of a kernel whose tiles have these axes."""
        sizes = {"S": self.segments, "E": self.edges, "H": self.heads, "C": self.channels}
        return {**{f"BLOCK_{axis}": sizes[axis] for axis in axes}, "num_warps": self.num_warps}


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
    return Tile(min(room // block_e, together), block_e, block_h, block_c, num_warps)


def mean_degree(graph: Graph) -> int:
    """Edges of a row on average, rounded down."""
    return graph.num_edges // max(graph.num_rows, 1)


def power_of_two(count: int) -> int:
    """The least power of two that is not below `count`."""
    return 1 << max(count - 1, 0).bit_length()
