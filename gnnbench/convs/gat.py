"""GATConv: attention whose scores are the sum of one term per end of an edge (Veličković et al. 2018)."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn import GATConv

from gnnbench.convs import _checks, _edges, _heads
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels

CONV = "GATConv"
COST, unsupported, ops = _heads.COST, _heads.unsupported, _heads.ops("gat_attention")


def multiplies_first(conv: GATConv, rewrites: frozenset[str]) -> bool:
    return _checks.are_plain_linear(conv.lin, conv.lin_src, conv.lin_dst, conv.res)


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
    lin_src, lin_dst = (conv.lin_src, conv.lin_dst) if conv.lin is None else (conv.lin, conv.lin)
    h_src = _heads.split_heads(conv, lin_src, x_src)
    if x_dst is x_src and conv.lin is not None:
        score_src, score_dst = _heads.scores(kernels, h_src, conv.att_src, conv.att_dst)
    else:
        (score_src,) = _heads.scores(kernels, h_src, conv.att_src)
        if x_dst is None:  # PyG then scores by the sources alone
            score_dst = score_src.new_zeros(graph.num_rows, conv.heads)
        else:
            (score_dst,) = _heads.scores(kernels, _heads.split_heads(conv, lin_dst, x_dst), conv.att_dst)
    edge = None
    if conv.lin_edge is not None and edge_attr is not None:
        edge = (_heads.edge_features(conv, graph, edge_attr) * conv.att_edge).sum(-1)
    inputs = score_dst, score_src, h_src
    return _heads.attended(conv, kernels, graph, "gat", inputs, edge, x_dst, return_attention_weights)
