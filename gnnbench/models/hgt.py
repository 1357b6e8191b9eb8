"""Heterogeneous graph transformer: attention over all relations of a node (Hu et al., WWW 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnbench.models._ends import HeadsConfig as Config

if TYPE_CHECKING:
    from torch.nn import Module

    from gnnbench.models import Types

__all__ = ["Config", "activates", "conv", "projects", "typed"]

typed = projects = True
activates = False  # as the conv has an activation of its own


def conv(config: Config, types: Types, widths: dict[str, int]) -> Module:
    """An HGTConv."""
    from torch_geometric.nn import HGTConv

    return HGTConv(widths, config.hidden, ([*widths], types.relations), config.heads)
