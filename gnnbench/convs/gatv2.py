"""GATv2Conv: attention whose scores depend on both ends of an edge jointly (Brody et al. 2022)."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn import GATv2Conv

from gnnbench.convs import _checks, _edges, _heads
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels

CONV = "GATv2Conv"
COST, unsupported, ops = _heads.COST, _heads.unsupported, _heads.ops("gatv2_attention")


def multiplies_first(conv: GATv2Conv, rewrites: frozenset[str]) -> bool:
    return _checks.are_plain_linear(conv.lin_l, conv.lin_r, conv.res)


def forward(
    conv: GATv2Conv,
    kernels: Kernels,
    rewrites: frozenset[str],
    x: _edges.Ends,
    graph: Graph,
    edge_attr: Tensor | None = None,
    return_attention_weights: bool | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Output [N, heads * out_channels] (or [N, out_channels], heads averaged), of arguments as `gat.forward`'s."""
    x_src, x_dst = _edges.pair(x)
    if getattr(conv.att, "shape", None) != (1, conv.heads, conv.out_channels):
        raise UnsupportedOp("GATv2Conv", ["its att was replaced by one of another shape"])
    if x_dst is None or (edge_attr is not None and conv.lin_edge is None):
        raise UnsupportedOp("GATv2Conv", ["no features of destinations, or edge features without edge_dim"])
    h_src = _heads.split_heads(conv, conv.lin_l, x_src)
    shared = conv.share_weights and isinstance(x, Tensor)  # of a pair, PyG transforms each by its own
    h_dst = h_src if shared else _heads.split_heads(conv, conv.lin_r, x_dst)
    edge = None if edge_attr is None else _heads.edge_features(conv, graph, edge_attr)
    inputs = h_dst, h_src, conv.att[0]
    return _heads.attended(conv, kernels, graph, "gatv2", inputs, edge, x_dst, return_attention_weights)
