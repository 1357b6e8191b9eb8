"""Graph convolutional network (Kipf & Welling, ICLR 2017)."""

from __future__ import annotations

from pydantic import Field
from torch_geometric.nn import GCNConv

from gnnbench.config import ModelConfig

bipartite = False  # PyG's conv refuses pairs, as degrees are of one set of nodes


class Config(ModelConfig):
    """How neighbours are weighted."""

    normalize: bool = Field(True, description="add self-loops and scale by degrees; otherwise a plain sum")


def conv(config: Config, in_channels: int, out_channels: int, last: bool) -> GCNConv:
    """A GCNConv that keeps its normalised adjacency, as full-batch training allows."""
    return GCNConv(in_channels, out_channels, cached=True, normalize=config.normalize)
