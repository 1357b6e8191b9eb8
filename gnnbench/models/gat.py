"""Graph attention network (Veličković et al., ICLR 2018)."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.nn import Module
from torch_geometric.nn import GATConv

from gnnbench.config import AttentionConfig as Config


def of_class(
    kind: type[Module], config: Config, in_channels: int, out_channels: int, last: bool, **own: Any
) -> Module:
    """One of PyG's attention convs: heads side by side, but averaged in the last layer."""
    if last:
        heads = {"out_channels": out_channels, "heads": config.output_heads, "concat": False}
    else:
        heads = {"out_channels": out_channels // config.heads, "heads": config.heads}
    edge_dim = config.hidden if takes_edges(config) else None
    return kind(in_channels, **heads, dropout=config.attention_dropout, edge_dim=edge_dim, **own)


def takes_edges(config: Config) -> bool:
    """Return whether every conv is given features of edges [E, hidden]."""
    return config.edge_features


conv = partial(of_class, GATConv)
