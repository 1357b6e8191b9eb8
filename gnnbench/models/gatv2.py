"""GATv2, whose attention depends on both ends jointly (Brody, Alon & Yahav, ICLR 2022)."""

from __future__ import annotations

from functools import partial

from torch_geometric.nn import GATv2Conv

from gnnbench.models.gat import Config, of_class, takes_edges

__all__ = ["Config", "conv", "takes_edges"]

conv = partial(of_class, GATv2Conv)
