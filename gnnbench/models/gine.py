"""Graph isomorphism network whose messages heed the features of edges (Hu et al., ICLR 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnbench.models import gin
from gnnbench.models.gin import Config

if TYPE_CHECKING:
    from torch.nn import Module

__all__ = ["Config", "conv", "linear_ends", "takes_edges"]


def takes_edges(config: Config) -> bool:
    """Return whether every conv is given features of edges [E, hidden]."""
    return True


def linear_ends(config: Config) -> bool:
    """Messages are sums of nodes and edges, which need the width `hidden` in every conv."""
    return True


def conv(config: Config, in_channels: int, out_channels: int, last: bool) -> Module:
    """A GINEConv around `mlp_layers` linear layers with ReLU between them."""
    from torch_geometric.nn import GINEConv

    return GINEConv(gin.network(config, in_channels, out_channels), train_eps=config.train_eps)
