"""TransformerConv: scaled dot-product attention over edges (Shi et al. 2021, UniMP)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn import TransformerConv

from gnnbench.convs import _checks, _edges, _heads
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.attention import attention
from gnnbench.ops.edge import sddmm
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.spmm import spmm

CONV = "TransformerConv"
COST, unsupported, ops = _heads.COST, _heads.unsupported, _heads.ops("dot_attention", "sddmm")


def multiplies_first(conv: TransformerConv, rewrites: frozenset[str]) -> bool:
    return _checks.are_plain_linear(conv.lin_query, conv.lin_key, conv.lin_value, conv.lin_skip)


def forward(
    conv: TransformerConv,
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
    if x_dst is None or (edge_attr is None) != (conv.lin_edge is None):
        raise UnsupportedOp("TransformerConv", ["no features of destinations, or edge features or edge_dim alone"])
    if edge_attr is not None and edge_attr.dim() != 2:
        raise UnsupportedOp("TransformerConv", ["edge features that are no matrix"])
    query = _heads.split_heads(conv, conv.lin_query, x_dst) * conv.out_channels**-0.5  # on nodes: there are fewer
    key, value = _heads.split_heads(conv, conv.lin_key, x_src), _heads.split_heads(conv, conv.lin_value, x_src)
    alpha = None
    if edge_attr is None:
        out = attention(kernels, graph, "dot", (query, key, value), _heads.drawn(conv, graph, value))
        if return_attention_weights is not None:
            alpha = _heads.weights(kernels, graph, sddmm(kernels, graph, query, key))
    else:
        edge, by_edge = _heads.edge_features(conv, graph, edge_attr), _edges.edges_as_columns(graph)
        score = sddmm(kernels, graph, query, key) + sddmm(kernels, by_edge, query, edge)
        out, alpha, dropped = _heads.aggregate_heads(conv, kernels, graph, score, value)
        out = out + spmm(kernels, by_edge, edge, dropped)
    out = _with_root(conv, _heads.joined(conv, out).to(value.dtype), x_dst)  # PyG's, under autocast on CPUs
    if alpha is None or not isinstance(return_attention_weights, bool):
        return out
    return out, _edges.in_edge_index(graph, alpha, looped=False)


def _with_root(conv: TransformerConv, out: Tensor, x: Tensor) -> Tensor:
    if not conv.root_weight:
        return _heads.owned(out)
    root = conv.lin_skip(x)
    if conv.lin_beta is None:
        return out + root
    beta = conv.lin_beta(torch.cat([out, root, out - root], dim=-1)).sigmoid()
    return torch.lerp(out, root, beta)
