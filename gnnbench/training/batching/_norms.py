"""Batch norms over the rows of all processes, in one message forward and one backward."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import BatchNorm1d, Module

from gnnbench.graph.part import Sums
from gnnbench.training.batching._shares import Shares


def bind_norms(model: Module, sums: Sums) -> None:
    """Let the batch norms of `model` normalise by the moments of the rows of all processes.

    Args:
        sums: `Shares` where rows of this process may have a weight.
    """
    for layer in model.modules():
        if type(layer) is BatchNorm1d:
            layer.forward = partial(_forward, layer, sums)  # type: ignore[method-assign]


def _forward(norm: Any, sums: Sums, x: Tensor) -> Tensor:
    if not norm.training and norm.running_mean is not None:
        out: Tensor = BatchNorm1d.forward(norm, x)
        return out
    x = x if norm.weight is None else x.to(norm.weight.dtype)  # of the parameters, under autocast too
    out, mean, variance, nodes = _Normalised.apply(x, sums, norm.eps)
    if norm.training and norm.running_mean is not None:
        with torch.no_grad():
            norm.num_batches_tracked += 1
            share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
            norm.running_mean.lerp_(mean, share)
            norm.running_var.lerp_(variance * (nodes / (nodes - 1)), share)
    return out if norm.weight is None else torch.addcmul(norm.bias, out, norm.weight)


class _Normalised(torch.autograd.Function):
    """Rows [N, C] less the mean of all processes' rows, over their deviation; mean, variance [C] and number too.

    Moments of each process are merged as by Chan, Golub & LeVeque (1983), in float64; no squares are subtracted.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, sums: Sums, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        weight = sums.weight if isinstance(sums, Shares) else 1.0
        own = x.sum(0).double() / max(len(x), 1)
        spread = (x - own.to(x.dtype)).square_().sum(0)
        table = sums.table(torch.cat([own.new_tensor([len(x) * weight]), own, spread * weight]))
        rows, means, spreads = table.split([1, x.size(1), x.size(1)], dim=1)
        nodes = rows.sum()
        if nodes <= 1:
            raise ValueError("batch norm needs the moments of more than one node, but all processes have one")
        mean = (rows * means).sum(0) / nodes
        variance = (spreads.sum(0) + (rows * (means - mean).square()).sum(0)) / nodes
        mean, variance = mean.to(x.dtype), variance.to(x.dtype)
        scale = (variance + eps).rsqrt()
        out = (x - mean).mul_(scale)
        ctx.save_for_backward(out, scale)
        ctx.sums, ctx.share = sums, (weight / nodes).to(x.dtype)
        ctx.mark_non_differentiable(mean, variance, nodes)
        return out, mean, variance, nodes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        out, scale = ctx.saved_tensors
        ends = ctx.sums.summed(torch.cat([grad.sum(0), (grad * out).sum(0)])) * ctx.share
        shift, slope = ends.view(2, -1)
        return (grad - shift).addcmul_(out, slope, value=-1).mul_(scale), None, None
