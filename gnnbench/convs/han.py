"""HANConv: attention as GATConv's along each relation, then over the relations of a type (Wang et al. 2019)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import HANConv
from torch_geometric.nn.conv.han_conv import group
from torch_geometric.typing import EdgeType

from gnnbench.convs import _checks, _heads
from gnnbench.graph import Graph
from gnnbench.ops.attention import attention
from gnnbench.ops.kernels import Kernels

CONV = "HANConv"
COST, unsupported, ops = _heads.COST, _heads.unsupported, _checks.uses("gat_attention")
TYPED = True


def forward(
    conv: HANConv,
    kernels: Kernels,
    rewrites: frozenset[str],
    x: dict[str, Tensor],
    graphs: dict[EdgeType, Graph],
    return_semantic_attention_weights: bool = False,
) -> dict[str, Tensor | None] | tuple[dict[str, Tensor | None], dict[str, Tensor | None]]:
    """Output [N, out_channels] of each type, None of those that no relation ends at.

    With `return_semantic_attention_weights` also the weights [R] of the relations of each type.
    """
    shape = conv.heads, conv.out_channels // conv.heads
    nodes = {kind: conv.proj[kind](own).view(-1, *shape) for kind, own in x.items()}
    scores: dict[tuple[EdgeType, int], Tensor] = {}
    for kind, h in nodes.items():  # of both ends of all relations, in one pass over the nodes of a type
        ends = [(relation, place) for relation in graphs for place in (0, -1) if relation[place] == kind]
        atts = [(conv.lin_dst if place else conv.lin_src)["__".join(relation)] for relation, place in ends]
        scores |= zip(ends, _heads.scores(kernels, h, *atts), strict=True) if ends else {}
    outs: dict[str, list[Tensor]] = {kind: [] for kind in x}
    for relation, graph in graphs.items():
        inputs = scores[relation, -1], scores[relation, 0], nodes[relation[0]]
        dropped = _heads.drawn(conv, graph, inputs[2])
        out = attention(kernels, graph, "gat", inputs, dropped, conv.negative_slope)
        outs[relation[-1]].append(F.relu(out.flatten(1)))
    grouped = {kind: group(each, conv.q, conv.k_lin) for kind, each in outs.items()}
    result, shares = ({kind: pair[place] for kind, pair in grouped.items()} for place in (0, 1))
    return (result, shares) if return_semantic_attention_weights else result
