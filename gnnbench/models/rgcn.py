"""Relational graph convolutional network (Schlichtkrull et al., ESWC 2018) of all types as one."""

from __future__ import annotations

from pydantic import Field
from torch_geometric.nn import RGCNConv

from gnnbench.config import Count
from gnnbench.models._typed import TypedConfig, Types

typed = joins = projects = True


class Config(TypedConfig):
    """How the weights of relations are shared."""

    bases: Count = Field(0, description="matrices that those of all relations are sums of; 0: one for each")


def conv(config: Config, types: Types, widths: dict[str, int]) -> RGCNConv:
    """An RGCNConv, mean over the in-edges of each relation."""
    return RGCNConv(config.hidden, config.hidden, len(types.relations), num_bases=config.bases or None)
