"""GraphSAGE with full neighbourhoods (Hamilton, Ying & Leskovec, NeurIPS 2017)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch_geometric.nn import SAGEConv

from gnnbench.config import ModelConfig


class Config(ModelConfig):
    """How neighbours are combined."""

    aggr: Literal["sum", "mean", "max", "min"] = Field("mean", description="how neighbours are combined")


def conv(config: Config, in_channels: int, out_channels: int, last: bool) -> SAGEConv:
    """A SAGEConv."""
    return SAGEConv(in_channels, out_channels, aggr=config.aggr)
