"""GraphSAGE on a graph of several types: a conv for every relation (Hamilton, Ying & Leskovec 2017)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch_geometric.nn import HeteroConv, SAGEConv

from gnnbench.models._typed import TypedConfig, Types

typed = True


class Config(TypedConfig):
    """How neighbours, and relations, are combined."""

    aggr: Literal["sum", "mean", "max", "min"] = Field("mean", description="how neighbours are combined")
    relations_aggr: Literal["sum", "mean", "max", "min"] = Field("sum", description="how relations are combined")


def conv(config: Config, types: Types, widths: dict[str, int]) -> HeteroConv:
    """A HeteroConv of SAGEConvs."""
    convs = {
        relation: SAGEConv((widths[relation[0]], widths[relation[2]]), config.hidden, aggr=config.aggr)
        for relation in types.relations
    }
    return HeteroConv(convs, aggr=config.relations_aggr)
