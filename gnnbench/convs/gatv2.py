"""GATv2Conv: attention whose scores depend on both ends of an edge jointly (Brody et al. 2022)."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn import GATv2Conv

from gnnbench.convs import _checks, _graph, _heads
from gnnbench.graph import Graph
from gnnbench.ops.attention import gatv2_attention
from gnnbench.ops.kernels import Kernels

CONV = "GATv2Conv"


def unsupported(conv: GATv2Conv) -> list[str]:
    return _checks.common(conv)


def ops(conv: GATv2Conv) -> list[str]:
    return ["gatv2_attention"]


def forward(conv: GATv2Conv, kernels: Kernels, rewrites: frozenset[str], x: Tensor, graph: Graph) -> Tensor:
    """Output [N, heads * out_channels] (or [N, out_channels], heads averaged) of features x [N, in_channels]."""
    x_src = conv.lin_l(x).view(-1, conv.heads, conv.out_channels)
    x_dst = x_src if conv.share_weights else conv.lin_r(x).view(-1, conv.heads, conv.out_channels)
    out = gatv2_attention(
        kernels,
        _graph.adjacency(conv, graph),
        x_src,
        x_dst,
        conv.att[0],
        conv.negative_slope,
        _heads.dropout(conv),
    )
    return _heads.finish(conv, out, x)
