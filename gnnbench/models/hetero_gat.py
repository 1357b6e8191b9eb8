"""Graph attention network on a graph of several types: a conv for every relation (Veličković et al. 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnbench.models._ends import HeadsConfig as Config

if TYPE_CHECKING:
    from torch.nn import Module

    from gnnbench.models import Types

__all__ = ["Config", "conv", "typed"]

typed = True


def conv(config: Config, types: Types, widths: dict[str, int]) -> Module:
    """A HeteroConv, sum over relations, of GATConvs without self-loops, heads side by side."""
    from torch_geometric.nn import GATConv, HeteroConv

    width, heads = config.hidden // config.heads, config.heads
    convs = {
        relation: GATConv((widths[relation[0]], widths[relation[2]]), width, heads, add_self_loops=False)
        for relation in types.relations
    }
    return HeteroConv(convs)
