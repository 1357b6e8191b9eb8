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
    return {**heads, "dropout": config.attention_dropout}
