"""Graph convolutional network (Kipf & Welling, ICLR 2017)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from gnnbench.config import ModelConfig

if TYPE_CHECKING:
    from torch.nn import Module

bipartite = False  # PyG's conv refuses pairs, as degrees are of one set of nodes


class Config(ModelConfig):
    """How neighbours are weighted."""

    normalize: bool = Field(True, description="add self-loops and scale by degrees; otherwise a plain sum")


def conv(config: Config, in_channels: int, out_channels: int, last: bool) -> Module:
    """A GCNConv that keeps its normalised adjacency, as full-batch training allows."""
    from torch_geometric.nn import GCNConv

    return GCNConv(in_channels, out_channels, cached=True, normalize=config.normalize)
