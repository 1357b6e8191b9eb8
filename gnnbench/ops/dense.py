"""Layers that take no graph, differentiable; all but sums of embeddings are no torch custom ops, which cost more.

Under `torch.compile` and autocast, they are torch's own ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gnnbench.errors import UnsupportedOp
from gnnbench.ops import _custom
from gnnbench.ops._custom import followed, is_learned, is_transformed, like
from gnnbench.ops._workload import Workload
from gnnbench.ops.kernels import Kernels

EPS = 1e-5  # of batch norm as it is benchmarked


def linear(kernels: Kernels, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`: x [N, F] times weight [D, F] transposed, plus bias [D].

    By `kernels` where they are faster than torch, with all gradients taken together.

    Returns:
        [N, D], differentiable in all three.

    Raises:
        RuntimeError: what torch says of shapes, types or devices that do not fit.
    """
    if not pays(kernels, x, weight, bias):
        return F.linear(x, weight, bias)
    if not is_learned([x, weight] if bias is None else [x, weight, bias]):
        return _computed(kernels, x, weight, bias)
    return _Linear.apply(x, weight, bias, kernels)


def _computed(kernels: Kernels, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return kernels.linear(x.contiguous(), weight.contiguous(), None if bias is None else bias.contiguous())


def pays(kernels: Kernels, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Return whether `linear` is by `kernels`, which are faster at it then than torch."""
    watched = not isinstance(x, Tensor) or torch.compiler.is_compiling()
    if watched or not kernels.pays("linear", x, weight) or is_transformed(x, weight, bias):
        return False
    return bias is None or (bias.shape == weight.shape[:1] and bias.dtype == weight.dtype)


def batch_norm(
    kernels: Kernels, x: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise the columns of x over the batch (Ioffe & Szegedy 2015, algorithm 1), with the ReLU after it.

    Only the input and its moments are kept for backward.

    Args:
        x: [N, F], floating point, N at least 1.
        weight: [F], of the type of x.
        bias: [F], likewise.
        eps: is added to the variance.
        relu: whether to set what is negative then to zero.

    Returns:
        out [N, F], differentiable in x, weight and bias; mean [F] and variance [F] of x, over N and not N - 1.
    """
    return _BatchNorm.apply(x, weight, bias, eps, relu, kernels)


def gru(
    kernels: Kernels,
    x: Tensor,
    state: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
) -> Tensor:
    """Return the next state of gated recurrent units (Cho et al. 2014), as `torch.nn.GRUCell` does.

    Of their products no more is kept than gates and news.

    Args:
        x: [N, K], what is read.
        state: [N, F].
        weight_ih: [3 F, K], of the reset gate, the update gate and the news.
        weight_hh: [3 F, F].
        bias_ih, bias_hh: [3 F]; all of one floating-point type.

    Returns:
        [N, F], differentiable in all of them.
    """
    given = x, state, weight_ih, weight_hh, bias_ih, bias_hh
    if is_transformed(*given):
        return Kernels().gru(x, state, (weight_ih, weight_hh), (bias_ih, bias_hh), keep=False)[0]
    return _Gru.apply(*given, kernels)


def head_scores(kernels: Kernels, x: Tensor, att: Tensor) -> Tensor:
    """out[k, n, h] = <x[n, h], att[k, h]>, for all k in one pass over x: what attention adds up at every edge.

    Args:
        x: [N, H, C], floating point.
        att: [K, H, C], of the type of x.

    Returns:
        [K, N, H], differentiable in both.
    """
    return _Pair.apply("head_scores", kernels, x, att)


def perceptron(kernels: Kernels, x: Tensor, weights: Tensor) -> Tensor:
    """out[i] = relu(x[i] W + b) times a vector: nothing of the hidden layer is in memory.

    Args:
        x: [N, K], floating point; few inputs, as networks over edges have.
        weights: [K + 2, D], of its type: the rows of W, then b, then that vector.

    Returns:
        [N], differentiable in both.
    """
    if is_transformed(x, weights):
        return Kernels().perceptron(x, weights)
    return _Pair.apply("perceptron", kernels, x, weights)


def embedding_sum(kernels: Kernels, tables: Sequence[Tensor], categories: Tensor) -> Tensor:
    """out[i] = sum over k of tables[k][categories[i, k]], in the order of the tables.

    Args:
        tables: K of [T_k, F], floating point and of one type.
        categories: [N, K] int64.

    Returns:
        [N, F], differentiable in the tables.

    Raises:
        UnsupportedOp: shapes or types do not fit.
        DatasetError: a category that its table lacks.
    """
    if not tables:
        raise UnsupportedOp("embedding_sum", ["there are no tables, expected at least one"])
    sizes = [0, *(len(table) for table in tables)]
    starts = torch.tensor(sizes, device=categories.device).cumsum(0)
    return _embedding_sum(torch.cat([*tables]), categories, starts, kernels)


class _Pair(torch.autograd.Function):
    """Calls a method of Kernels on two tensors, and in backward the one that gives the gradients of both."""

    @staticmethod
    def forward(ctx: Any, name: str, kernels: Kernels, *tensors: Tensor) -> Tensor:
        ctx.how = name, kernels
        ctx.save_for_backward(*tensors)
        return getattr(kernels, name)(*(each.contiguous() for each in tensors))

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        name, kernels = ctx.how
        given = (each.contiguous() for each in (grad_out, *ctx.saved_tensors))
        return None, None, *getattr(followed(kernels), f"{name}_backward")(*given)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, kernels: Kernels) -> Tensor:
        ctx.kernels, ctx.has_bias = kernels, bias is not None
        ctx.save_for_backward(x, weight)
        return _computed(kernels, x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        given = grad_out.contiguous(), x.contiguous(), weight.contiguous()
        grad_x, grad_weight, grad_bias = followed(ctx.kernels).linear_backward(*given, ctx.needs_input_grad[0])
        return grad_x, grad_weight, grad_bias if ctx.has_bias else None, None


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool, kernels: Kernels
    ) -> tuple[Tensor, Tensor, Tensor]:
        out, mean, var = kernels.batch_norm(x.contiguous(), weight, bias, eps, relu)
        ctx.how = (eps, relu, kernels)
        ctx.save_for_backward(x, weight, bias, mean, var)
        ctx.mark_non_differentiable(mean, var)
        return out, mean, var

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, weight, bias, *moments = ctx.saved_tensors
        eps, relu, kernels = ctx.how
        given = x.contiguous(), grad_out.contiguous(), weight, bias
        return *followed(kernels).batch_norm_backward(*given, moments, eps, relu), None, None, None


class _Gru(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        *tensors, kernels = given
        x, state, *rest = (each if each is None else each.contiguous() for each in tensors)
        out, kept = kernels.gru(x, state, rest[:2], rest[2:], any(ctx.needs_input_grad))
        ctx.kernels = kernels
        ctx.save_for_backward(kept, x, state, *rest)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        kernels, (kept, x, state, *rest) = followed(ctx.kernels), ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives follow how all of it was computed
            _, kept = kernels.gru(x, state, rest[:2], rest[2:], keep=True)
        of_rows, of_weights, of_biases = kernels.gru_backward(grad_out.contiguous(), kept, x, state, rest[:2])
        needed = zip(of_biases, ctx.needs_input_grad[4:6], strict=True)
        return *of_rows, *of_weights, *(grad if need else None for grad, need in needed), None


@_custom.op(lambda table, categories, **_: like(table, categories.size(0), table.size(1)))
def _embedding_sum(table: Tensor, categories: Tensor, starts: Tensor, kernels: Kernels) -> Tensor:
    reasons = []
    if categories.dim() != 2 or categories.size(-1) != len(starts) - 1:
        reasons.append(f"categories have shape {list(categories.shape)}, expected [N, {len(starts) - 1}]")
    if categories.dtype != torch.int64:
        reasons.append(f"categories have type {categories.dtype}, expected torch.int64")
    if not table.is_floating_point() or table.dim() != 2:
        reasons.append(f"tables have shape {list(table.shape)} and type {table.dtype}")
    if table.device != categories.device:
        reasons.append(f"tables are on {table.device}, categories on {categories.device}")
    if reasons:
        raise UnsupportedOp("embedding_sum", reasons)
    return kernels.embedding_sum(table, categories, starts)


@_custom.gradient(lambda grad_out, rows, **_: like(grad_out, rows, grad_out.size(1)))
def _embedding_sum_backward(
    grad_out: Tensor, categories: Tensor, starts: Tensor, rows: int, kernels: Kernels
) -> Tensor:
    return kernels.embedding_sum_backward(grad_out, categories, starts)


@_custom.differentiates(_embedding_sum)
class _EmbeddingSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, categories: Tensor, starts: Tensor, kernels: Any) -> Tensor:
        ctx.how = (table.size(0), kernels)
        ctx.save_for_backward(categories, starts)
        return _custom.below_autograd(ctx, _embedding_sum, table, categories, starts, kernels)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        return _embedding_sum_backward(grad_out, *ctx.saved_tensors, *ctx.how), None, None, None


def _by_table(tables: Tensor, categories: Tensor) -> Tensor:
    """Add up as OGB's encoders do, table by table."""
    return reduce(torch.add, map(F.embedding, categories.unbind(1), tables.unbind()))


WORKLOADS = {
    "embedding_sum": Workload(
        inputs={"tables": "KTF", "categories": "RK"},
        out="RF",
        call=lambda kernels, _, tables, categories: embedding_sum(kernels, tables.unbind(), categories),
        sizes={"R": "rows", "K": "tables", "F": "features"},
        shapes=("820x9x300", "6500x9x300", "1700x3x300"),
        fixed={"T": 64},
        integers={"categories": 64},
        saved=("categories",),
        peers={"torch": _by_table},
    ),
    "gru": Workload(
        inputs={"x": "RF", "state": "RF", "weight_ih": "GF", "weight_hh": "GF", "bias_ih": "G", "bias_hh": "G"},
        out="RF",
        call=lambda kernels, _, **inputs: gru(kernels, **inputs),
        sizes={"R": "rows", "F": "features", "G": "gates"},
        shapes=("13752x64x192",),
        peers={"torch": lambda **inputs: torch.gru_cell(*inputs.values())},
    ),
    "linear": Workload(
        inputs={"x": "RI", "weight": "OI", "bias": "O"},
        out="RO",
        call=lambda kernels, _, **inputs: linear(kernels, **inputs),
        sizes={"R": "rows", "I": "inputs", "O": "outputs"},
        products={"forward": 2, "backward": 4},
        saved=("x", "weight"),
        peers={"torch": lambda x, weight, bias: F.linear(x, weight, bias)},
    ),
    "batch_norm": Workload(
        inputs={"x": "RF", "weight": "F", "bias": "F"},
        out="RF",
        call=lambda kernels, _, x, weight, bias: batch_norm(kernels, x, weight, bias, EPS)[0],
        sizes={"R": "rows", "F": "features"},
        peers={"torch": lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, True, eps=EPS)},
    ),
    "perceptron": Workload(
        inputs={"x": "RI", "weights": "WD"},
        out="R",
        call=lambda kernels, _, **inputs: perceptron(kernels, **inputs),
        sizes={"R": "rows", "D": "hidden"},
        fixed={"I": 3, "W": 5},
        shapes=("8192x64",),  # of more, some number is so close to zero that rounding decides on its gradient
        peers={"torch": Kernels().perceptron},
    ),
}
