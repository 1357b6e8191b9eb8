"""Random features, of every kind of view, and random graphs."""

from __future__ import annotations

from random import Random

import torch
from torch import Tensor, nn
from torch.nn import Module

from tests.support.fuzz.layers import Net

ROWS = (0, 1, 2, 3, 7, 20, 33, 70)
EDGES = 3  # features of an edge


def edge_index(draw: Random, nodes: int) -> Tensor:
    """[2, E] with loops, repeated edges and nodes without any."""
    edges = draw.choice((0, 1, nodes, 4 * nodes)) if nodes else 0
    return torch.randint(max(nodes, 1), (2, edges))


def view(draw: Random, rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """Features [rows, width], which may be a view of others."""
    kinds = {
        "plain": lambda: torch.randn(rows, width, dtype=dtype),
        "transposed": lambda: torch.randn(width, rows, dtype=dtype).t(),
        "strided": lambda: torch.randn(2 * rows, 2 * width, dtype=dtype)[::2, ::2],
        "shifted": lambda: torch.randn(rows + 1, width + 1, dtype=dtype)[1:, 1:],
        "expanded row": lambda: torch.randn(width, dtype=dtype).expand(rows, width),
        "expanded column": lambda: torch.randn(rows, 1, dtype=dtype).expand(rows, width),
        "negative": lambda: torch._neg_view(torch.randn(rows, width, dtype=dtype)),
        "imaginary": lambda: torch.randn(rows, width, dtype=torch.promote_types(dtype, torch.cfloat)).conj().imag,
        "sparse": lambda: torch.randn(rows, width, dtype=dtype) * (torch.rand(rows, width) < 0.2),
    }
    name = draw.choices([*kinds], (10, *[1] * (len(kinds) - 1)))[0]
    return kinds[name]()


def features(draw: Random, net: Module, rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """Draw what a model takes: categories where it begins with embeddings, else features; rarely a wrong type."""
    first = net.blocks[0] if isinstance(net, Net) else net
    if isinstance(first, nn.Embedding):
        return torch.randint(7 if draw.random() > 0.05 else 9, (rows,))
    if tables := [*first.children()] if "Encoder" in type(first).__name__ else []:
        sizes = [table.num_embeddings for table in tables[0]]
        columns = [torch.randint(size if draw.random() > 0.01 else size + 2, (rows,)) for size in sizes]
        return torch.stack(columns, 1)
    if draw.random() < 0.02:
        dtype = draw.choice((torch.float16, torch.float32, torch.float64, torch.int64))
    if not dtype.is_floating_point:
        return torch.randint(5, (rows, width))
    x = view(draw, rows, width if draw.random() > 0.02 else width + 1, dtype)
    return x
