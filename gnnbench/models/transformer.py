"""Graph transformer with dot-product attention over edges (Shi et al., UniMP, IJCAI 2021)."""

from __future__ import annotations

from pydantic import Field
from torch.nn import Module
from torch_geometric.nn import TransformerConv

from gnnbench.config import AttentionConfig
from gnnbench.models.gat import of_class, takes_edges

__all__ = ["Config", "conv", "takes_edges"]


class Config(AttentionConfig):
    """Options of what a node adds to its attention."""

    root_weight: bool = Field(True, description="add a linear layer of the node itself to what it attends to")


def conv(config: Config, in_channels: int, out_channels: int, last: bool) -> Module:
    """A TransformerConv: heads side by side, or averaged in the last layer."""
    own = {"root_weight": config.root_weight}
    return of_class(TransformerConv, config, in_channels, out_channels, last, **own)
