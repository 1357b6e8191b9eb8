"""Graph attention network (Veličković et al., ICLR 2018)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gnnbench.config import AttentionConfig as Config

if TYPE_CHECKING:
    from torch.nn import Module

__all__ = ["Config", "conv", "takes_edges"]


def of_class(name: str, config: Config, in_channels: int, out_channels: int, last: bool, **own: Any) -> Module:
    """One of PyG's attention convs: heads side by side, but averaged in the last layer."""
    from torch_geometric import nn

    if last:
        heads = {"out_channels": out_channels, "heads": config.output_heads, "concat": False}
    else:
        heads = {"out_channels": out_channels // config.heads, "heads": config.heads}
    edge_dim = config.hidden if takes_edges(config) else None
    made: Module = getattr(nn, name)(
        in_channels, **heads, dropout=config.attention_dropout, edge_dim=edge_dim, **own
    )
    return made


def takes_edges(config: Config) -> bool:
    """Return whether every conv is given features of edges [E, hidden]."""
    return config.edge_features


conv = partial(of_class, "GATConv")
