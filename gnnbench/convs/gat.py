"""GATConv: attention whose scores are the sum of one term per end of an edge (Veličković et al. 2018)."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn import GATConv

from gnnbench.convs import _checks, _graph, _heads
from gnnbench.graph import Graph
from gnnbench.ops.attention import gat_attention
from gnnbench.ops.kernels import Kernels

CONV = "GATConv"


def unsupported(conv: GATConv) -> list[str]:
    return _checks.common(conv)


def ops(conv: GATConv) -> list[str]:
    return ["gat_attention"]


def forward(conv: GATConv, kernels: Kernels, rewrites: frozenset[str], x: Tensor, graph: Graph) -> Tensor:
    """Output [N, heads * out_channels] (or [N, out_channels], heads averaged) of features x [N, in_channels]."""
    h = conv.lin(x).view(-1, conv.heads, conv.out_channels)
    score_src = (h * conv.att_src).sum(-1)
    score_dst = (h * conv.att_dst).sum(-1)
    out = gat_attention(
        kernels,
        _graph.adjacency(conv, graph),
        h,
        score_src,
        score_dst,
        conv.negative_slope,
        _heads.dropout(conv),
    )
    return _heads.finish(conv, out, x)
