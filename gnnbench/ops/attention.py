"""Differentiable attention over the edges of every destination; what it keeps for backward is per node."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops import _custom
from gnnbench.ops._workload import Workload
from gnnbench.ops.dropout import Dropout, drawn_seed
from gnnbench.ops.families import FAMILIES, Attention, Family, Inputs
from gnnbench.ops.kernels import Kernels


def attention(
    kernels: Kernels,
    graph: Graph,
    family: str,
    inputs: tuple[Tensor, ...],
    dropout: float | Dropout = 0.0,
    negative_slope: float = 0.2,
) -> Tensor:
    """out[i] = sum over edges (i, j) of softmax_j(score[ij]) * value[j], with scores of `family`.

    Args:
        kernels: the kernels that compute it.
        graph: N destinations, M sources.
        family: a name in `FAMILIES`, such as "gat", "gatv2" or "dot".
        inputs: of the shapes in `FAMILIES[family].inputs`, for
            "gat": query [N, H], key [M, H] and value [M, H, C], with scores leaky_relu(query[i] + key[j]);
            "gatv2": query [N, H, C], key [M, H, C], which is value too, and att [H, C], with scores
            <att, leaky_relu(query[i] + key[j])>;
            "dot": query [N, H, C], key [M, H, C] and value [M, H, D], with scores <query[i], key[j]>.
        dropout: dropped share of the attention weights, drawn by torch's generator, or those drawn before.
        negative_slope: of the leaky ReLU.

    Returns:
        The shape of value, but N rows; differentiable in `inputs`; zero for a destination without edges.

    Raises:
        UnsupportedOp: shapes or types do not fit, or the kernels decline.
    """
    inputs = _fetched(FAMILIES[family], graph, inputs)
    keeps = FAMILIES[family].keeps_positive and torch.is_grad_enabled()
    keep = keeps and any(tensor.requires_grad for tensor in inputs)
    p, seed = dropout[:2] if isinstance(dropout, Dropout) else (dropout, drawn_seed(dropout, inputs[0].device))
    return _OPS[family](*inputs, seed, p, negative_slope, keep, graph, kernels)[0]


def _fetched(family: Family, graph: Graph, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """`inputs`, with those of sources for all columns of the graph, which come together."""
    fetched = graph.sources(*(inputs[place] for place in family.sources))
    of_sources = dict(zip(family.sources, fetched, strict=True))
    return tuple(of_sources.get(place, tensor) for place, tensor in enumerate(inputs))


def _registered(family: Family) -> _custom.Op:
    """The op of a family, and its gradient.

    It returns out, the same before it was rounded if it was (else an empty tensor), stats, and of families that
    keep it what positive scores contribute, empty without `keep`.
    """
    count = len(family.inputs)
    tensors, how = _tensors(*family.inputs), "float p, float negative_slope, bool keep, str graph, str kernels"
    positive = ("out_positive", "alpha_positive") if family.keeps_positive else ()

    def asked(graph: Graph, inputs: Inputs, seed: Tensor | None, p: float, slope: float) -> Attention:
        dropout = None if seed is None else Dropout(p, seed, graph.first_edge)
        return Attention(family, tuple(tensor.contiguous() for tensor in inputs), slope, dropout)

    def outputs(exact: Tensor, dtype: torch.dtype, stats: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
        out = exact.to(dtype)  # backward needs `exact`: small gradients are what is left of large products with it
        missing = [stats.new_empty(0) for _ in positive[len(kept) :]]
        return out, exact.new_empty(0) if out is exact else exact, stats, *kept, *missing

    def fake(keep: bool, graph: Graph, **given: Any) -> tuple[Tensor, ...]:
        value = family.roles(tuple(given[name] for name in family.inputs))[2]
        shape = graph.num_rows, *value.shape[1:]
        out = value.new_empty(shape, dtype=torch.promote_types(value.dtype, torch.float32))
        kept = (torch.empty_like(out), out.new_empty(shape[:2])) if keep and positive else ()
        return outputs(out, value.dtype, out.new_empty(*shape[:2], 2), *kept)

    @_custom.op(fake, f"{family.op}({tensors}, Tensor? seed, {how}) -> {_results(3 + len(positive))}")
    def op(*arguments: Any) -> tuple[Tensor, ...]:
        inputs, (seed, p, slope, keep, graph, kernels) = arguments[:count], arguments[count:]
        _check(family, kernels, graph, p, inputs)
        given = asked(graph, inputs, seed, p, slope)
        exact, *kept = kernels.attention(graph, given, keep and bool(positive))
        return outputs(exact, inputs[0].dtype, *kept)

    kept = _tensors("out", "stats", *positive)

    @_custom.gradient(
        lambda **given: tuple(_custom.like(given[name]) for name in family.inputs),
        f"{family.op}_backward(Tensor grad_out, {tensors}, Tensor? seed, {kept}, {how}) -> {_results(count)}",
    )
    def backward_op(grad_out: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
        inputs, seed = arguments[:count], arguments[count]
        kept, (p, slope, _, graph, kernels) = arguments[count + 1 : -5], arguments[-5:]
        given = asked(graph, inputs, seed, p, slope)
        return kernels.attention_backward(graph, given, kept, grad_out)

    @_custom.differentiates(op)
    class _Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:
            ctx.how = arguments[count + 1 :]
            out, exact, *kept = _custom.below_autograd(ctx, op, *arguments)
            ctx.save_for_backward(*arguments[: count + 1], exact if exact.numel() else out, *kept)
            ctx.mark_non_differentiable(exact, *kept)
            return out, exact, *kept

        @staticmethod
        def backward(ctx: Any, grad_out: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
            gradients = backward_op(grad_out, *ctx.saved_tensors, *ctx.how)
            return *gradients, None, *[None] * len(ctx.how)

    return op


def _tensors(*names: str) -> str:
    return ", ".join(f"Tensor {name}" for name in names)


def _results(count: int) -> str:
    return f"({', '.join(['Tensor'] * count)})"


def _check(family: Family, kernels: Kernels, graph: Graph, p: float, inputs: tuple[Tensor, ...]) -> None:
    """Raise UnsupportedOp unless `inputs` have shapes that fit, and one type and place."""
    graph.check_unchanged()
    reasons = []
    sizes, dtype = {"N": graph.num_rows, "M": graph.num_cols}, inputs[0].dtype
    for (name, dims), tensor in zip(family.inputs.items(), inputs, strict=True):
        shape = tensor.shape
        expected = [sizes.setdefault(dim, size) for dim, size in zip(dims, (*shape, 1, 1, 1), strict=False)]
        if list(shape) != expected:
            reasons.append(f"{name} has shape {list(shape)}, expected {expected}")
        if not tensor.is_floating_point() or tensor.dtype != dtype:
            reasons.append(f"{name} has type {tensor.dtype}; all must be of one floating-point type")
        if tensor.device != graph.device:
            reasons.append(f"{name} is on {tensor.device}, the graph on {graph.device}")
    if not 0 <= p <= 1:
        reasons.append(f"dropout is {p}, but must be from 0 to 1")
    if reasons := reasons or kernels.unsupported(family.op, graph, *inputs):
        raise UnsupportedOp(family.op, reasons)


_OPS = {name: _registered(family) for name, family in FAMILIES.items()}


def _workload(family: Family) -> Workload:
    slope, (forward_gathers, backward_gathers) = 0.2, family.gathers

    def call(kernels: Kernels, graph: Graph, **inputs: Tensor) -> Tensor:
        return attention(kernels, graph, family.name, tuple(inputs.values()), negative_slope=slope)

    def kernel(kernels: Kernels, graph: Graph, *inputs: Tensor) -> tuple[Tensor, ...]:
        return kernels.attention(graph, Attention(family, inputs, slope, None), family.keeps_positive)

    def backward(kernels: Kernels, graph: Graph, inputs: Inputs, kept: Inputs, grad_out: Tensor) -> Inputs:
        return kernels.attention_backward(graph, Attention(family, inputs, slope, None), kept, grad_out)

    return Workload(
        inputs=family.inputs,
        out="NHD",
        call=call,
        gathers={"forward": forward_gathers, "backward": backward_gathers},
        scaled="C" in family.inputs["query"],
        kernel=kernel,
        backward=backward,
    )


WORKLOADS = {family.op: _workload(family) for family in FAMILIES.values()}
