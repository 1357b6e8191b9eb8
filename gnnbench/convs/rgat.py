"""RGATConv: attention over all edges of a node, with weights of each relation (Busbridge et al. 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import RGATConv

from gnnbench.convs import _checks, _cost, _edges, _heads
from gnnbench.convs._relations import by_relation, relations
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.edge import edge_softmax, sddmm
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.spmm import spmm

CONV = "RGATConv"
COST = _cost.Cost(_cost.Rates(600_000, 250, 0, 200, 5), _cost.Rates(900_000, 350, 0, 400, 10))
ops = _checks.uses("sddmm", "edge_softmax", "spmm")


def unsupported(conv: RGATConv) -> list[str]:
    plain = _checks.are_plain_linear(conv.lin_edge)
    return _heads.unsupported(conv) + ["RGATConv has a layer of edge features that is not PyG's"] * (not plain)


def forward(
    conv: RGATConv,
    kernels: Kernels,
    rewrites: frozenset[str],
    x: _edges.Ends,
    graph: Graph,
    edge_type: Tensor | None = None,
    edge_attr: Tensor | None = None,
    return_attention_weights: bool | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Output [N, heads * dim * out_channels] (or [N, dim * out_channels], heads averaged) of x [N, in_channels].

    x may be a pair of sources [M, .] and destinations [N, .]. `edge_type` [E] int64, edge features, and attention
    weights to return are in the order of PyG's `edge_index`.
    """
    x_src, x_dst = _edges.pair(x)
    if x_dst is None or (edge_attr is not None and conv.lin_edge is None):
        raise UnsupportedOp("RGATConv", ["no features of destinations, or edge features without edge_dim"])
    x_src, x_dst = _edges.lasting(x_src, x_dst)
    pairs = relations(conv, graph, edge_type).source_pairs
    weight = conv.weight if conv.num_bases is None else torch.tensordot(conv.att, conv.basis, 1)
    value = by_relation(x_src.index_select(0, pairs.source), weight, pairs.sizes)  # of every relation and source
    key = value @ conv.k
    # Of every destination and relation; the weights are multiplied first, for they have as many columns as heads.
    blocks = weight if weight.dim() == 4 else weight.unsqueeze(1)
    of_query = (blocks @ conv.q.unflatten(0, (blocks.size(1), -1))).flatten(1, 2)
    query = (x_dst @ of_query.transpose(0, 1).flatten(1)).view(-1, conv.q.size(1))
    additive = conv.attention_mode == "additive-self-attention"
    if additive:  # query + key, as <(query, 1), (1, key)>
        ends = torch.stack([query, torch.ones_like(query)], -1), torch.stack([torch.ones_like(key), key], -1)
    else:
        ends = query.unsqueeze(-1), key.unsqueeze(-1)
    score = sddmm(kernels, pairs.within, *ends)
    if edge_attr is not None:
        edge_attr = edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr
        of_edges = edge_attr @ (conv.lin_edge.weight.t() @ conv.e)
        of_edges = _edges.in_rows(pairs.within, _edges.in_rows(graph, of_edges))
        score = score + of_edges if additive else score * of_edges
    score = F.leaky_relu(score, conv.negative_slope) if additive else score
    within = conv.attention_mechanism == "within-relation"
    alpha = edge_softmax(kernels, pairs.within if within else pairs.across, score)
    value = value.view(-1, conv.heads, conv.out_channels).repeat_interleave(conv.dim, 1)
    out = _aggregated(conv, kernels, pairs.across, value, alpha)
    out = out.flatten(1) if conv.concat else out.view(-1, conv.heads, conv.dim * conv.out_channels).mean(1)
    out = out if conv.bias is None else out + conv.bias
    if not isinstance(return_attention_weights, bool):
        return out
    alpha = _edges.in_edge_index(pairs.within, alpha, looped=False)
    return out, _edges.in_edge_index(graph, alpha, looped=False)


def _aggregated(conv: RGATConv, kernels: Kernels, graph: Graph, value: Tensor, alpha: Tensor) -> Tensor:
    """The sum of value [M, H, C] by alpha [E, H], with the option `mod` to preserve how many edges there are."""
    if conv.mod == "f-additive":
        return spmm(kernels, graph, value, torch.where(alpha > 0, alpha + 1, alpha))
    if conv.mod == "additive":
        return spmm(kernels, graph, value, alpha) + conv.w * spmm(kernels, graph, value)
    if conv.mod not in ("scaled", "f-scaled"):
        return spmm(kernels, graph, value, F.dropout(alpha, conv.dropout, conv.training))
    degree = graph.degree.to(value.dtype).view(-1, 1)
    if conv.mod == "scaled":
        degree = conv.activation(degree @ conv.l1 + conv.b1) @ conv.l2 + conv.b2
    return spmm(kernels, graph, value, alpha) * degree.unsqueeze(1)
