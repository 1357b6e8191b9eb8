"""Graph isomorphism network (Xu, Hu, Leskovec & Jegelka, ICLR 2019)."""

from __future__ import annotations

from itertools import pairwise

from pydantic import Field
from torch.nn import BatchNorm1d, Linear, Module, ReLU, Sequential
from torch_geometric.nn import GINConv

from gnnbench.config import ModelConfig, Positive


class Config(ModelConfig):
    """The network that every conv applies to its sums."""

    train_eps: bool = Field(False, description="learn the weight of a node itself beside its neighbours")
    mlp_layers: Positive = Field(2, description="linear layers in each conv")
    mlp_norm: bool = Field(True, description="batch norm between the linear layers of a conv")


def conv(config: Config, in_channels: int, out_channels: int, last: bool) -> GINConv:
    """A GINConv around `network`."""
    return GINConv(network(config, in_channels, out_channels), train_eps=config.train_eps)


def network(config: Config, in_channels: int, out_channels: int) -> Sequential:
    """`mlp_layers` linear layers with batch norm, if `mlp_norm`, and ReLU between them."""
    widths = [in_channels, *[config.hidden] * (config.mlp_layers - 1), out_channels]
    layers: list[Module] = [Linear(widths[0], widths[1])]
    for width, following in pairwise(widths[1:]):
        layers += [BatchNorm1d(width)] if config.mlp_norm else []
        layers += [ReLU(), Linear(width, following)]
    return Sequential(*layers)
