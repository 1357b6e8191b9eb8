"""GATConv: attention whose scores are the sum of one term per end of an edge (Veličković et al. 2018)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv

from gnnbench.convs import _edges, _heads, _layers
from gnnbench.graph import Graph
from gnnbench.ops.attention import attention
from gnnbench.ops.kernels import Kernels

CONV = "GATConv"
COST, unsupported = _heads.COST, _heads.unsupported


def ops(conv: GATConv) -> list[str]:
    return _heads.ops(conv, "gat_attention")


def multiplies_first(conv: GATConv, rewrites: frozenset[str]) -> bool:
    return _layers.are_plain_linear(conv.lin, conv.lin_src, conv.lin_dst, conv.res)


def forward(
    conv: GATConv,
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
    h_src, h_dst = _transformed(conv, x_src, x_dst)
    if h_dst is h_src:
        score_src, score_dst = _heads.scores(kernels, h_src, conv.att_src, conv.att_dst)
    else:
        (score_src,) = _heads.scores(kernels, h_src, conv.att_src)
        if h_dst is None:  # PyG then scores by the sources alone
            score_dst = score_src.new_zeros(graph.num_rows, conv.heads)
        else:
            (score_dst,) = _heads.scores(kernels, h_dst, conv.att_dst)
    looped, slope = _edges.adjacency(conv, graph), conv.negative_slope
    edge_attr = None if conv.lin_edge is None else edge_attr
    wanted = _heads.returns_weights(return_attention_weights)
    if edge_attr is None:
        dropped = _heads.drawn(conv, looped, h_src)
        out = attention(kernels, looped, "gat", (score_dst, score_src, h_src), dropped, slope)
    if wanted or edge_attr is not None:
        (fetched,) = looped.sources(score_src)
        score = fetched.index_select(0, looped.col) + score_dst.index_select(0, looped.row)
        if edge_attr is None:
            alpha = _heads.weights(kernels, looped, F.leaky_relu(score, slope), dropped)
        else:
            score = score + (_heads.edge_features(conv, graph, edge_attr) * conv.att_edge).sum(-1)
            out, _, alpha = _heads.aggregate_heads(conv, kernels, looped, F.leaky_relu(score, slope), h_src)
    out = _heads.finish(conv, out, x_dst)
    return (out, _edges.in_edge_index(graph, alpha, looped=conv.add_self_loops)) if wanted else out


def _transformed(conv: GATConv, x_src: Tensor, x_dst: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Sources and destinations as heads [., H, C]; one product where both are the same and share weights."""
    lin_src, lin_dst = (conv.lin_src, conv.lin_dst) if conv.lin is None else (conv.lin, conv.lin)
    h_src = _heads.split_heads(conv, lin_src, x_src)
    if x_dst is None:
        return h_src, None
    return h_src, h_src if x_dst is x_src and conv.lin is not None else _heads.split_heads(conv, lin_dst, x_dst)
