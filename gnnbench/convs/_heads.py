"""Steps that attention convs share around their ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import __version__ as pyg
from torch_geometric.nn import MessagePassing

from gnnbench.convs import _checks, _edges
from gnnbench.convs._cost import Cost, Rates
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops._custom import is_dispatched
from gnnbench.ops.attention import attention
from gnnbench.ops.dense import head_scores
from gnnbench.ops.dropout import Dropout, drawn_seed
from gnnbench.ops.edge import edge_softmax
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.spmm import spmm

COST = Cost(Rates(150_000, 45, 50_000, 16, 1.5, -55), Rates(250_000, 70, 70_000, 50, 2.8, -170))


def returns_weights(flag: bool | None) -> bool:
    """Return whether PyG's conv adds attention weights to its output: before PyG 2.8 for False, too."""
    return isinstance(flag, bool) if pyg.startswith("2.7.") else bool(flag)


def unsupported(conv: MessagePassing) -> list[str]:
    """Reasons that hold for all attention, and why PyG would refuse its options, at the latest in training."""
    wrong, name = _checks.common(conv, node_dim=(0,)), type(conv).__name__
    slope = getattr(conv, "negative_slope", 0.0)
    if not isinstance(slope, (int, float)):
        wrong.append(f"{name} has negative_slope={slope}, which is no number")
    if not isinstance(conv.dropout, (int, float)) or not 0.0 <= conv.dropout <= 1.0:
        wrong.append(f"{name} has dropout={conv.dropout}; it has to be a number from 0 to 1")
    return wrong


def ops(fused: str, *parts: str) -> Callable[[MessagePassing], list[str]]:
    """Name `fused`, or what takes its place where a conv attends to edges too: `parts`, a softmax and a sum."""
    return lambda conv: [fused] if conv.lin_edge is None else [*parts, "edge_softmax", "spmm"]


def split_heads(conv: MessagePassing, layer: Any, x: Tensor) -> Tensor:
    """Features x [N, F] transformed by `layer`, as heads [N, H, C]."""
    if layer is None:
        raise UnsupportedOp(type(conv).__name__, ["it lacks a linear layer"])
    out: Tensor = layer(x)
    if out.shape != (x.size(0), conv.heads * conv.out_channels):
        raise UnsupportedOp(type(conv).__name__, ["a linear layer was replaced by one of another width"])
    return out.view(-1, conv.heads, conv.out_channels)


def scores(kernels: Kernels, h: Tensor, *atts: Tensor) -> tuple[Tensor, ...]:
    """Scores [N, H] of heads h [N, H, C] by each of `atts` [1, H, C]."""
    if (
        "head_scores" not in kernels.accelerated
        or is_dispatched([h, *atts])
        or not all(att.shape == (1, *h.shape[1:]) and att.dtype == h.dtype for att in atts)
    ):
        return tuple((h * att).sum(-1) for att in atts)
    return head_scores(kernels, h, torch.cat(atts) if len(atts) > 1 else atts[0]).unbind()


def drawn(conv: MessagePassing, graph: Graph, x: Tensor) -> Dropout | float:
    """Draw which attention weights to drop, on the device of `x`; zero outside training, where none are."""
    p = float(conv.dropout) if conv.training else 0.0
    seed = drawn_seed(p, x.device)
    return 0.0 if seed is None else Dropout(p, seed, graph.first_edge)


def joined(conv: MessagePassing, out: Tensor) -> Tensor:
    """Heads side by side [N, heads * out_channels], or averaged [N, out_channels], from [N, H, C]."""
    return out.flatten(1) if conv.concat else out.mean(dim=1)


def aggregate_heads(
    conv: MessagePassing, kernels: Kernels, graph: Graph, score: Tensor, x: Tensor
) -> tuple[Tensor, ...]:
    """Attention from its scores [E, H]: the sum of x [M, H, C], and the weights before and after dropout."""
    alpha = edge_softmax(kernels, graph, score)
    dropped = F.dropout(alpha, float(conv.dropout), conv.training)
    return spmm(kernels, graph, x, dropped), alpha, dropped


def weights(kernels: Kernels, graph: Graph, score: Tensor, dropped: Dropout | float = 0.0) -> Tensor:
    """Attention weights [E, H] of scores, to return beside what a fused op makes of the same dropout."""
    alpha = edge_softmax(kernels, graph, score)
    return alpha if isinstance(dropped, float) else alpha * dropped.multiplier(*alpha.shape).to(alpha)


def edge_features(conv: MessagePassing, graph: Graph, edge_attr: Tensor) -> Tensor:
    """`edge_attr` [E] or [E, D], with those of added loops, transformed to [E', H, C] in the order of rows."""
    if looped := bool(getattr(conv, "add_self_loops", False)):
        reverse = conv.flow != "source_to_target"
        edge_attr = _edges.with_loops(graph, edge_attr, conv.fill_value, by_source=reverse)
    else:
        edge_attr = _edges.in_rows(graph, edge_attr)
    edge_attr = edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr
    if _checks.is_plain_linear(conv.lin_edge):
        out = conv.lin_edge(edge_attr)
    else:  # hooks and a user's layer are given edges in the order of PyG
        out = conv.lin_edge(_edges.in_edge_index(graph, edge_attr, looped=looped))
        out = _edges.in_rows(graph, out, looped=looped)
    return out.view(-1, conv.heads, conv.out_channels)


def attended(
    conv: MessagePassing,
    kernels: Kernels,
    graph: Graph,
    family: str,
    inputs: tuple[Tensor, Tensor, Tensor],
    edge: Tensor | None,
    x_dst: Tensor | None,
    return_attention_weights: bool | None,
) -> Any:
    """Attention of GATConv and GATv2Conv by a fused op, or over edges that add terms `edge` to both ends'.

    Args:
        inputs: of the op of this family: terms of destinations and of sources, then values or weights of scores.
        edge: [E', ...] in the order of rows, with those of added loops.

    Returns:
        Heads joined, with skip connection and bias; and the weights [E', H] in the order of PyG's, if asked for.
    """
    of_dst, of_src, last = inputs
    looped, is_v2 = _edges.adjacency(conv, graph), family == "gatv2"
    value = of_src if is_v2 else last
    wanted = returns_weights(return_attention_weights)
    if edge is None:
        dropped = drawn(conv, looped, value)
        out = attention(kernels, looped, family, inputs, dropped, conv.negative_slope)
    if wanted or edge is not None:
        (fetched,) = looped.sources(of_src)
        terms = fetched.index_select(0, looped.col) + of_dst.index_select(0, looped.row)
        score = F.leaky_relu(terms if edge is None else terms + edge, conv.negative_slope)
        score = (score * conv.att).sum(-1) if is_v2 else score
        if edge is None:
            alpha = weights(kernels, looped, score, dropped)
        else:
            out, _, alpha = aggregate_heads(conv, kernels, looped, score, value)
    out = joined(conv, out)
    if conv.res is not None and x_dst is not None:
        out = out + conv.res(x_dst)
    out = owned(out) if conv.bias is None else out + conv.bias
    return (out, _edges.in_edge_index(graph, alpha, looped=conv.add_self_loops)) if wanted else out


def owned(out: Tensor) -> Tensor:
    """A copy of what a backward needs unchanged, for callers may edit results in place."""
    return out.clone() if out.requires_grad else out
