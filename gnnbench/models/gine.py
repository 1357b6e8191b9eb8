"""Graph isomorphism network whose messages heed the features of edges (Hu et al., ICLR 2020)."""

from __future__ import annotations

from torch_geometric.nn import GINEConv

from gnnbench.models.gin import Config, network


def takes_edges(config: Config) -> bool:
    """Return whether every conv is given features of edges [E, hidden]."""
    return True


def linear_ends(config: Config) -> bool:
    """Messages are sums of nodes and edges, which need the width `hidden` in every conv."""
    return True


def conv(config: Config, in_channels: int, out_channels: int, last: bool) -> GINEConv:
    """A GINEConv around the network of a GIN."""
    return GINEConv(network(config, in_channels, out_channels), train_eps=config.train_eps)
