"""Graph attention network (Veličković et al., ICLR 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnbench.config import AttentionConfig
from gnnbench.models import _heads

if TYPE_CHECKING:
    from torch.nn import Module


takes_edges = _heads.takes_edges


class Config(AttentionConfig):
    """Nothing beyond what every attention model has."""


def conv(config: Config, in_channels: int, out_channels: int, last: bool) -> Module:
    """A GATConv: heads side by side, or averaged in the last layer."""
    from torch_geometric.nn import GATConv

    return GATConv(in_channels, **_heads.arguments(config, out_channels, last))
