"""Graph transformer with dot-product attention over edges (Shi et al., UniMP, IJCAI 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from gnnbench.config import AttentionConfig
from gnnbench.models import _heads

if TYPE_CHECKING:
    from torch.nn import Module


takes_edges = _heads.takes_edges


class Config(AttentionConfig):
    """Options of what a node adds to its attention."""

    root_weight: bool = Field(True, description="add a linear layer of the node itself to what it attends to")


def conv(config: Config, in_channels: int, out_channels: int, last: bool) -> Module:
    """A TransformerConv: heads side by side, or averaged in the last layer."""
    from torch_geometric.nn import TransformerConv

    return TransformerConv(
        in_channels, root_weight=config.root_weight, **_heads.arguments(config, out_channels, last)
    )
