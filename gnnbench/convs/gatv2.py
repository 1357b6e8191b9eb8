"""GATv2Conv: attention whose scores depend on both ends of an edge jointly (Brody et al. 2022)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATv2Conv

from gnnbench.convs import _edges, _heads, _layers
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.attention import attention
from gnnbench.ops.kernels import Kernels

CONV = "GATv2Conv"
COST, unsupported = _heads.COST, _heads.unsupported


def ops(conv: GATv2Conv) -> list[str]:
    return _heads.ops(conv, "gatv2_attention")


def multiplies_first(conv: GATv2Conv, rewrites: frozenset[str]) -> bool:
    return _layers.are_plain_linear(conv.lin_l, conv.lin_r, conv.res)


def forward(
    conv: GATv2Conv,
    kernels: Kernels,
    rewrites: frozenset[str],
    x: _edges.Ends,
    graph: Graph,
    edge_attr: Tensor | None = None,
    return_attention_weights: bool | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Output [N, heads * out_channels] (or [N, out_channels], heads averaged) of features x [N, in_channels].

    x may be a pair of sources [M, .] and destinations [N, .]. Edge features, and attention weights to return,
    are in the order of PyG's `edge_index`, with its loops.
    """
    x_src, x_dst = _edges.pair(x)
    if getattr(conv.att, "shape", None) != (1, conv.heads, conv.out_channels):
        raise UnsupportedOp("GATv2Conv", ["its att was replaced by one of another shape"])
    if x_dst is None or (edge_attr is not None and conv.lin_edge is None):
        raise UnsupportedOp("GATv2Conv", ["no features of destinations, or edge features without edge_dim"])
    h_src = _heads.split_heads(conv, conv.lin_l, x_src)
    shared = conv.share_weights and isinstance(x, Tensor)  # of a pair, PyG transforms each by its own
    h_dst = h_src if shared else _heads.split_heads(conv, conv.lin_r, x_dst)
    looped, slope = _edges.adjacency(conv, graph), conv.negative_slope
    wanted = _heads.returns_weights(return_attention_weights)
    if edge_attr is None:
        dropped = _heads.drawn(conv, looped, h_src)
        out = attention(kernels, looped, "gatv2", (h_dst, h_src, conv.att[0]), dropped, slope)
    if wanted or edge_attr is not None:
        (fetched,) = looped.sources(h_src)
        summed = fetched.index_select(0, looped.col) + h_dst.index_select(0, looped.row)
        if edge_attr is not None:
            summed = summed + _heads.edge_features(conv, graph, edge_attr)
        score = (F.leaky_relu(summed, slope) * conv.att).sum(-1)
        if edge_attr is None:
            alpha = _heads.weights(kernels, looped, score, dropped)
        else:
            out, _, alpha = _heads.aggregate_heads(conv, kernels, looped, score, h_src)
    out = _heads.finish(conv, out, x_dst)
    return (out, _edges.in_edge_index(graph, alpha, looped=conv.add_self_loops)) if wanted else out
