"""The graph that a conv aggregates over."""

from __future__ import annotations

from torch.nn import Module

from gnnbench.graph import Graph


def adjacency(conv: Module, graph: Graph) -> Graph:
    """`graph`, or the same with one self-loop per node where the conv adds them.

    GCNConv's `improved` asks for loops of weight two, but PyG heeds that only beside given edge weights.
    """
    return graph.with_self_loops if getattr(conv, "add_self_loops", False) else graph
