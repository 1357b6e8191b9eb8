"""Attention-based graph neural network, whose convs have no weights but one (Thekumparampil et al., 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnbench.config import ModelConfig

if TYPE_CHECKING:
    from torch.nn import Module

LINEAR_ENDS = True


class Config(ModelConfig):
    """Nothing beyond what every model has; `layers` counts the propagation layers between the linear ones."""


def conv(config: Config, in_channels: int, out_channels: int, last: bool) -> Module:
    """An AGNNConv with a trained temperature."""
    from torch_geometric.nn import AGNNConv

    return AGNNConv(requires_grad=True)
