"""How attention models spread their width over heads."""

from __future__ import annotations

from typing import Any

from gnnbench.config import AttentionConfig


def arguments(config: AttentionConfig, out_channels: int, last: bool) -> dict[str, Any]:
    """Keyword arguments of PyG's attention convs: heads side by side, but averaged in the last layer."""
    if last:
        heads = {"out_channels": out_channels, "heads": config.output_heads, "concat": False}
    else:
        heads = {"out_channels": out_channels // config.heads, "heads": config.heads}
    edge_dim = config.hidden if takes_edges(config) else None
    return {**heads, "dropout": config.attention_dropout, "edge_dim": edge_dim}


def takes_edges(config: AttentionConfig) -> bool:
    """Return whether every conv is given features of edges [E, hidden]."""
    return config.edge_features
