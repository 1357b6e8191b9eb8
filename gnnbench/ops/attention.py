"""Differentiable attention over the edges of every destination; what it keeps for backward is per node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph, handles
from gnnbench.ops import _custom
from gnnbench.ops.dropout import Dropout, drawn_seed
from gnnbench.ops.kernels import Kernels


def gat_attention(
    kernels: Kernels,
    graph: Graph,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
) -> Tensor:
    """out[i] = sum over edges (i, j) of softmax_j(leaky_relu(score_dst[i] + score_src[j])) * x[j].

    Veličković et al. 2018, equations 1 to 3, with the score's two halves computed per node.

    Args:
        kernels: who computes it.
        graph: N destinations, M sources.
        x: [M, H, C], transformed sources.
        score_src: [M, H], `att_src` times the sources.
        score_dst: [N, H], `att_dst` times the destinations.
        negative_slope: of the leaky ReLU.
        dropout: dropped share of the attention weights, drawn by torch's generator.

    Returns:
        [N, H, C], differentiable in all three; zero for a destination without edges.

    Raises:
        UnsupportedOp: shapes or types do not fit, or the kernels decline.
    """
    tensors = x, score_src, score_dst
    keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    seed = drawn_seed(dropout, x.device)
    out: Tensor = _gat(*tensors, seed, dropout, negative_slope, keep, graph.handle, kernels.handle)[0]
    return out


def gatv2_attention(
    kernels: Kernels,
    graph: Graph,
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
) -> Tensor:
    """out[i] = sum over edges (i, j) of softmax_j(<att, leaky_relu(x_dst[i] + x_src[j])>) * x_src[j].

    Brody et al. 2022, equation 7.

    Args:
        kernels: who computes it.
        graph: N destinations, M sources.
        x_src: [M, H, C], transformed sources.
        x_dst: [N, H, C], transformed destinations.
        att: [H, C].
        negative_slope: of the leaky ReLU.
        dropout: dropped share of the attention weights, drawn by torch's generator.

    Returns:
        [N, H, C], differentiable in x_src, x_dst and att; zero for a destination without edges.

    Raises:
        UnsupportedOp: shapes or types do not fit, or the kernels decline.
    """
    seed = drawn_seed(dropout, x_src.device)
    out: Tensor = _gatv2(x_src, x_dst, att, seed, dropout, negative_slope, graph.handle, kernels.handle)[0]
    return out


def dot_attention(
    kernels: Kernels, graph: Graph, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0
) -> Tensor:
    """out[i] = sum over edges (i, j) of softmax_j(<query[i], key[j]>) * value[j].

    Shi et al. 2021, equations 3 and 4; the caller scales `query`.

    Args:
        kernels: who computes it.
        graph: N destinations, M sources.
        query: [N, H, C].
        key: [M, H, C].
        value: [M, H, D].
        dropout: dropped share of the attention weights, drawn by torch's generator.

    Returns:
        [N, H, D], differentiable in all three; zero for a destination without edges.

    Raises:
        UnsupportedOp: shapes or types do not fit, or the kernels decline.
    """
    seed = drawn_seed(dropout, query.device)
    out: Tensor = _dot(query, key, value, seed, dropout, graph.handle, kernels.handle)[0]
    return out


@_custom.op(
    "gat_attention(Tensor x, Tensor score_src, Tensor score_dst, Tensor? seed, float p, float negative_slope, "
    "bool keep, str graph, str kernels) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    fake=lambda x, score_src, score_dst, seed, p, slope, keep, graph, kernels: _outputs(x, graph, keep),
)
def _gat(
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    seed: Tensor | None,
    p: float,
    negative_slope: float,
    keep: bool,
    graph: str,
    kernels: str,
) -> tuple[Tensor, ...]:
    on, by = _custom.objects(graph, kernels)
    heads, channels = _each(x)
    expected = (on.num_cols, heads, channels), (on.num_cols, heads), (on.num_rows, heads)
    _check("gat_attention", by, on, p, {"x": x, "score_src": score_src, "score_dst": score_dst}, expected)
    return _rounded(x, *by.gat_attention(on, x, score_src, score_dst, negative_slope, _dropout(p, seed), keep))


@_custom.gradient(
    "gat_attention_backward(Tensor grad_out, Tensor x, Tensor score_src, Tensor score_dst, Tensor? seed, "
    "Tensor out, Tensor stats, Tensor out_positive, Tensor alpha_positive, float p, float negative_slope, "
    "bool keep, str graph, str kernels) -> (Tensor, Tensor, Tensor)",
    fake=lambda grad_out, x, score_src, score_dst, *_: tuple(map(_custom.like, (x, score_src, score_dst))),
)
def _gat_backward(
    grad_out: Tensor,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    seed: Tensor | None,
    out: Tensor,
    stats: Tensor,
    out_positive: Tensor,
    alpha_positive: Tensor,
    p: float,
    negative_slope: float,
    keep: bool,
    graph: str,
    kernels: str,
) -> tuple[Tensor, ...]:
    on, by = _custom.objects(graph, kernels)
    kept, dropout = (out, stats, out_positive, alpha_positive), _dropout(p, seed)
    return by.gat_attention_backward(on, x, score_src, score_dst, negative_slope, dropout, *kept, grad_out)


@_custom.op(
    "gatv2_attention(Tensor x_src, Tensor x_dst, Tensor att, Tensor? seed, float p, float negative_slope, "
    "str graph, str kernels) -> (Tensor, Tensor, Tensor)",
    fake=lambda x_src, x_dst, att, seed, p, negative_slope, graph, kernels: _outputs(x_src, graph),
)
def _gatv2(
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    seed: Tensor | None,
    p: float,
    negative_slope: float,
    graph: str,
    kernels: str,
) -> tuple[Tensor, ...]:
    on, by = _custom.objects(graph, kernels)
    each = _each(x_src)
    expected = (on.num_cols, *each), (on.num_rows, *each), each
    _check("gatv2_attention", by, on, p, {"x_src": x_src, "x_dst": x_dst, "att": att}, expected)
    return _rounded(x_src, *by.gatv2_attention(on, x_src, x_dst, att, negative_slope, _dropout(p, seed)))


@_custom.gradient(
    "gatv2_attention_backward(Tensor grad_out, Tensor x_src, Tensor x_dst, Tensor att, Tensor? seed, "
    "Tensor out, Tensor stats, float p, float negative_slope, str graph, str kernels) -> (Tensor, Tensor, Tensor)",
    fake=lambda grad_out, x_src, x_dst, att, *_: tuple(map(_custom.like, (x_src, x_dst, att))),
)
def _gatv2_backward(
    grad_out: Tensor,
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    seed: Tensor | None,
    out: Tensor,
    stats: Tensor,
    p: float,
    negative_slope: float,
    graph: str,
    kernels: str,
) -> tuple[Tensor, ...]:
    on, by = _custom.objects(graph, kernels)
    dropout = _dropout(p, seed)
    return by.gatv2_attention_backward(on, x_src, x_dst, att, negative_slope, dropout, out, stats, grad_out)


@_custom.op(
    "dot_attention(Tensor query, Tensor key, Tensor value, Tensor? seed, float p, str graph, str kernels) "
    "-> (Tensor, Tensor, Tensor)",
    fake=lambda query, key, value, seed, p, graph, kernels: _outputs(value, graph),
)
def _dot(
    query: Tensor, key: Tensor, value: Tensor, seed: Tensor | None, p: float, graph: str, kernels: str
) -> tuple[Tensor, ...]:
    on, by = _custom.objects(graph, kernels)
    heads, width = _each(query)
    expected = (on.num_rows, heads, width), (on.num_cols, heads, width), (on.num_cols, heads, _each(value)[1])
    _check("dot_attention", by, on, p, {"query": query, "key": key, "value": value}, expected)
    return _rounded(value, *by.dot_attention(on, query, key, value, _dropout(p, seed)))


@_custom.gradient(
    "dot_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor? seed, Tensor out, "
    "Tensor stats, float p, str graph, str kernels) -> (Tensor, Tensor, Tensor)",
    fake=lambda grad_out, query, key, value, *_: tuple(map(_custom.like, (query, key, value))),
)
def _dot_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seed: Tensor | None,
    out: Tensor,
    stats: Tensor,
    p: float,
    graph: str,
    kernels: str,
) -> tuple[Tensor, ...]:
    on, by = _custom.objects(graph, kernels)
    return by.dot_attention_backward(on, query, key, value, _dropout(p, seed), out, stats, grad_out)


def _differentiate(op: OpOverload, backward_op: Callable[..., Any]) -> None:
    """Give an op of three tensors and a seed its gradient; the first of its outputs is differentiable."""

    @_custom.differentiates(op)
    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:
            ctx.how = arguments[4:]
            _custom.keep_alive(ctx, *ctx.how[-2:])
            out, exact, *kept = _custom.below_autograd(op, *arguments)
            ctx.save_for_backward(*arguments[:4], exact if exact.numel() else out, *kept)
            ctx.mark_non_differentiable(exact, *kept)
            return out, exact, *kept

        @staticmethod
        def backward(ctx: Any, grad_out: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
            gradients = backward_op(grad_out, *ctx.saved_tensors, *ctx.how)
            return *gradients, None, *[None] * len(ctx.how)


_differentiate(_gat, _gat_backward)
_differentiate(_gatv2, _gatv2_backward)
_differentiate(_dot, _dot_backward)


def _dropout(p: float, seed: Tensor | None) -> Dropout | None:
    return None if seed is None else Dropout(p, seed)


def _rounded(value: Tensor, exact: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
    """What an op returns: `exact` in the type of `value`, and itself for the backward where that is another.

    Small gradients are what is left of large products with it.
    """
    out = exact.to(value.dtype)
    return out, exact.new_empty(0) if out is exact else exact, *kept


def _outputs(value: Tensor, graph: str, keep: bool | None = None) -> tuple[Tensor, ...]:
    """The same, empty: out, stats and, of the op that takes `keep`, out_positive and alpha_positive."""
    shape = handles.find(graph).num_rows, *value.shape[1:]
    out = value.new_empty(shape, dtype=torch.promote_types(value.dtype, torch.float32))
    positive = [] if keep is None else [out.new_empty(size if keep else 0) for size in (shape, shape[:2])]
    return _rounded(value, out, out.new_empty(*shape[:2], 2), *positive)


def _each(tensor: Tensor) -> tuple[int, int]:
    """Heads and channels of [nodes, H, C], or what would do for a tensor of too few dimensions."""
    heads, channels = (*tensor.shape, 1, 1)[1:3]
    return heads, channels


def _check(
    op: str,
    kernels: Kernels,
    graph: Graph,
    p: float,
    tensors: dict[str, Tensor],
    expected: tuple[tuple[int, ...], ...],
) -> None:
    """Raise UnsupportedOp unless `tensors` have the `expected` shapes, and the type and place of the first."""
    graph.check_unchanged()
    reasons = []
    dtype = next(iter(tensors.values())).dtype
    for (name, tensor), shape in zip(tensors.items(), expected, strict=True):
        if tensor.shape != shape:
            reasons.append(f"{name} has shape {list(tensor.shape)}, expected {list(shape)}")
        if not tensor.is_floating_point() or tensor.dtype != dtype:
            reasons.append(f"{name} has type {tensor.dtype}; all must be of one floating-point type")
        if tensor.device != graph.device:
            reasons.append(f"{name} is on {tensor.device}, the graph on {graph.device}")
    if not 0 <= p <= 1:
        reasons.append(f"dropout is {p}, but must be from 0 to 1")
    if reasons := reasons or kernels.unsupported(op, graph, *tensors.values()):
        raise UnsupportedOp(op, reasons)
