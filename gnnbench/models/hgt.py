"""Heterogeneous graph transformer: attention over all relations of a node (Hu et al., WWW 2020)."""

from __future__ import annotations

from torch_geometric.nn import HGTConv

from gnnbench.models._typed import HeadsConfig as Config
from gnnbench.models._typed import Types

typed = projects = True
activates = False  # as the conv has an activation of its own


def conv(config: Config, types: Types, widths: dict[str, int]) -> HGTConv:
    """An HGTConv."""
    return HGTConv(widths, config.hidden, ([*widths], types.relations), config.heads)
