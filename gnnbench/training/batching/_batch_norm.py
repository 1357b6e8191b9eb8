"""Batch norm over the nodes of all processes; torch's own `SyncBatchNorm` is for GPUs only."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Module

from gnnbench.graph.part import Exchange


def bind(model: Module, exchange: Exchange, nodes: int) -> None:
    """Let the batch norms of `model` normalise by the moments of the features of all `nodes`."""
    for _, layer in model.named_modules():
        if type(layer) is BatchNorm1d:
            layer.forward = partial(_forward, layer, exchange, nodes)  # type: ignore[method-assign]


def _forward(norm: Any, exchange: Exchange, nodes: int, x: Tensor) -> Tensor:
    if not norm.training and norm.running_mean is not None:
        out: Tensor = BatchNorm1d.forward(norm, x)
        return out
    if nodes == 1:
        raise ValueError("batch norm needs the moments of more than one node, but all processes have one")
    x = x if norm.weight is None else x.to(norm.weight.dtype)  # of the parameters, under autocast too
    mean = _Sum.apply(x.sum(0), exchange) / nodes
    centred = x - mean
    variance = _Sum.apply(centred.square().sum(0), exchange) / nodes
    if norm.training and norm.running_mean is not None:
        with torch.no_grad():
            norm.num_batches_tracked += 1
            share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
            norm.running_mean.lerp_(mean, share)
            norm.running_var.lerp_(variance * (nodes / (nodes - 1)), share)
    out = centred * (variance + norm.eps).rsqrt()
    return out if norm.weight is None else torch.addcmul(norm.bias, out, norm.weight)


class _Sum(torch.autograd.Function):
    """The sum over all processes; each depends on what every one of them put in."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: Exchange) -> Tensor:
        ctx.exchange = exchange
        return exchange.summed(x.clone())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.exchange.summed(grad.clone()), None
