"""Graph attention network on a graph of several types: a conv for every relation (Veličković et al. 2018)."""

from __future__ import annotations

from torch_geometric.nn import GATConv, HeteroConv

from gnnbench.models._typed import HeadsConfig as Config
from gnnbench.models._typed import Types

typed = True


def conv(config: Config, types: Types, widths: dict[str, int]) -> HeteroConv:
    """A HeteroConv, sum over relations, of GATConvs without self-loops, heads side by side."""
    width, heads = config.hidden // config.heads, config.heads
    convs = {
        relation: GATConv((widths[relation[0]], widths[relation[2]]), width, heads, add_self_loops=False)
        for relation in types.relations
    }
    return HeteroConv(convs)
