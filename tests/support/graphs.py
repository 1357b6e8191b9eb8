"""The graph zoo: small graphs with every oddity that a kernel can trip over."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from gnnbench.graph import CSRBuilder, Graph
from gnnbench.ops.kernels import Kernels


def _random(seed: int, num_rows: int, num_cols: int, edges: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    src = torch.randint(num_cols, (edges,), generator=generator)
    dst = torch.randint(num_rows, (edges,), generator=generator)
    return torch.stack([src, dst])


def _hub(nodes: int, edges: int) -> Tensor:
    """90% of the edges run into node 3."""
    edge_index = _random(5, nodes, nodes, edges)
    edge_index[1, : edges * 9 // 10] = 3
    return edge_index[:, torch.randperm(edges, generator=torch.Generator().manual_seed(6))]


def _power_law(nodes: int, edges: int) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    weight = torch.arange(1, nodes + 1, dtype=torch.float64).pow(-0.8)
    return torch.stack([torch.multinomial(weight, edges, True, generator=generator) for _ in range(2)])


@functools.cache
def zoo() -> dict[str, tuple[Tensor, int, int]]:
    """Name -> (edge_index [2, E], destinations, sources)."""
    symmetric = _random(1, 15, 15, 40)
    loops = torch.arange(9).repeat(2, 1)
    return {
        "no edges": (torch.empty(2, 0, dtype=torch.int64).zero_(), 5, 5),
        "no nodes": (torch.empty(2, 0, dtype=torch.int64).zero_(), 0, 0),
        "one node": (torch.zeros(2, 1, dtype=torch.int64), 1, 1),
        "no sources": (torch.empty(2, 0, dtype=torch.int64).zero_(), 15, 0),
        "isolated nodes": (_random(2, 7, 7, 12) * 2 + 3, 20, 20),
        "self loops": (torch.cat([loops, _random(3, 9, 9, 14), loops[:, :4]], dim=1), 9, 9),
        "duplicates": (_random(4, 4, 4, 90), 4, 4),
        "symmetric": (torch.cat([symmetric, symmetric.flip(0)], dim=1), 15, 15),
        "hub": (_hub(30, 300), 30, 30),
        "wide": (_random(8, 6, 31, 80), 6, 31),
        "tall": (_random(9, 31, 6, 80), 31, 6),
        "power law": (_power_law(60, 900), 60, 60),
    }


NAMES = list(zoo())
SQUARE = [name for name, (_, rows, cols) in zoo().items() if rows == cols]
# For numerical derivatives, whose time grows with the square of the inputs: a row of four edges, one of them there
# twice, a loop, rows and a source without edges; and nothing but empty rows.
SMALL = {
    "knot": (torch.tensor([[0, 1, 2, 1, 0, 3], [1, 1, 1, 1, 3, 4]]), 6, 5),
    "empty rows": (torch.empty(2, 0, dtype=torch.int64), 2, 0),
}


def graph(name: str, layout: CSRBuilder | None = None) -> Graph:
    """A graph of the zoo or a small one, built by `layout`."""
    edge_index, rows, cols = (zoo() | SMALL)[name]
    return Graph.from_edge_index(edge_index, rows, cols, layout)


def power_law(nodes: int, edges: int, layout: CSRBuilder | None = None) -> Graph:
    """A larger graph, for what only shows when the work is split among threads."""
    return Graph.from_edge_index(_power_law(nodes, edges), nodes, layout=layout)


def crowd(layout: Kernels, edges: int, sources: int) -> Graph:
    """A row of so many edges beside empty and short ones, where `layout` computes."""
    src, dst = _random(10, 1, sources, edges + 71)
    dst[:edges], dst[edges:-1] = 1, 3
    return Graph.from_edge_index(torch.stack([src, dst]).to(layout.device_type), 5, sources, layout)


def relative_error(found: Tensor, truth: Tensor) -> float:
    """Root mean square of the difference over that of the truth; exact zeros are expected to be exact."""
    assert found.shape == truth.shape
    difference, scale = (found.double() - truth.double()).norm(), truth.double().norm()
    return float(difference / scale) if scale or difference.isnan() else float(difference)


TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-13}
