"""Checks that refuse tensors which are no graph."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnbench.errors import GraphError

MAX_INT32 = 2**31 - 1


def check_edge_index(edge_index: Tensor) -> None:
    """Raise GraphError for what cannot be the edges of any graph."""
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise GraphError(f"edge_index has shape {list(edge_index.shape)}, but must be [2, E]")
    if edge_index.is_floating_point() or edge_index.dtype == torch.bool:
        raise GraphError(f"edge_index has type {edge_index.dtype}, but must hold integers")


def check_size(num_rows: int, num_cols: int, num_edges: int) -> None:
    """Raise GraphError for more than 32 bits can number."""
    for name, count in (("rows", num_rows), ("columns", num_cols), ("edges", num_edges)):
        if not 0 <= count <= MAX_INT32:
            raise GraphError(f"a graph of {count} {name} is outside the range of 0 to {MAX_INT32}")


def check_range(name: str, index: Tensor, size: int) -> None:
    """Raise GraphError for an index that is not in 0 to `size` - 1."""
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= size):
        wrong = index[(index < 0) | (index >= size)][0]
        raise GraphError(f"{name} index {int(wrong)} is outside the range of 0 to {size - 1}")
