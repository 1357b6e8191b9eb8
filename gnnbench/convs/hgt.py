"""HGTConv: dot-product attention over all relations of a node, with keys and values of each (Hu et al. 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import HeteroLinear, HGTConv
from torch_geometric.typing import EdgeType

from gnnbench.convs import _checks, _heads
from gnnbench.convs._relations import joined
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.attention import attention
from gnnbench.ops.kernels import Kernels

CONV = "HGTConv"
COST, ops = _heads.COST, _checks.uses("dot_attention")
TYPED = True


def unsupported(conv: HGTConv) -> list[str]:
    replaced = not all(_checks.is_untouched(layer, HeteroLinear) for layer in (conv.k_rel, conv.v_rel))
    return _checks.common(conv, node_dim=(0,)) + ["HGTConv has a layer of relations that is not PyG's"] * replaced


def forward(
    conv: HGTConv, kernels: Kernels, rewrites: frozenset[str], x: dict[str, Tensor], graphs: dict[EdgeType, Graph]
) -> dict[str, Tensor]:
    """Output [N, out_channels] of each type that is a destination, of features [N, in_channels] of all types."""
    order = [conv.edge_types_map[relation] for relation in graphs]
    if order != sorted(order):  # which PyG takes for granted
        raise UnsupportedOp("HGTConv", ["its relations come in another order than it was made with"])
    heads, channels = conv.heads, conv.out_channels // conv.heads
    parts = {kind: out.view(len(out), 3, heads, channels).unbind(1) for kind, out in conv.kqv_lin(x).items()}
    queries = {kind: query for kind, (_, query, _) in parts.items() if kind in conv.dst_node_types}
    # A relation has weights of its own for keys and values, by which its sources are multiplied, not its edges.
    by_relation = [layer.weight.unflatten(0, (heads, -1)).unbind(1) for layer in (conv.k_rel, conv.v_rel)]
    keys, values = [], []
    for relation, place in zip(graphs, order, strict=True):
        key, _, value = parts[relation[0]]
        of_key, of_value = (weights[place] for weights in by_relation)
        scale = conv.p_rel["__".join(relation)] * channels**-0.5
        keys.append(_product(key, of_key * scale.view(heads, 1, 1)))
        values.append(_product(value, of_value))
    graph = joined(graphs, {kind: len(query) for kind, query in queries.items()})
    query = torch.cat([*queries.values()])
    out = attention(kernels, graph, "dot", (query, torch.cat(keys), torch.cat(values))).flatten(1)
    own = dict(zip(queries, out.split([*map(len, queries.values())]), strict=True))
    own = conv.out_lin({kind: F.gelu(each) for kind, each in own.items()})
    return {kind: _with_skip(conv, kind, own[kind], x[kind]) for kind in queries}


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply the heads of x [N, H, C] by those of weight [H, C, D]."""
    return torch.bmm(x.transpose(0, 1), weight).transpose(0, 1)


def _with_skip(conv: HGTConv, kind: str, out: Tensor, x: Tensor) -> Tensor:
    if out.size(-1) != x.size(-1):
        return out
    share = conv.skip[kind].sigmoid()
    return share * out + (1 - share) * x
