"""GATv2, whose attention depends on both ends jointly (Brody, Alon & Yahav, ICLR 2022)."""

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
    """A GATv2Conv: heads side by side, or averaged in the last layer."""
    from torch_geometric.nn import GATv2Conv

    return GATv2Conv(in_channels, **_heads.arguments(config, out_channels, last))
