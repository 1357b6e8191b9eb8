"""Several processes that share out the targets of a step: gradients, and batch norms over the rows of all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import BatchNorm1d, Module

from gnnbench.graph.part import Sums

if TYPE_CHECKING:
    from gnnbench.training.batching._batch import Batch


class Shares(Sums):
    """The share of this process in each step, where each has the whole graph, or all graphs.

    Attributes:
        scale: of the gradients that this process adds: 1 in training; elsewhere all have the same batch.
        weight: of its rows in the moments of batch norms: likewise, but 0 where they stand in for an empty share.
        edges: of its batches in the current epoch.
        summed_bytes: gradients, and moments of batch norms, that it added in the current epoch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.weight = self.scale = 1 / self.size
        self.edges = self.summed_bytes = 0

    def summed(self, x: Tensor) -> Tensor:
        self.summed_bytes += x.nbytes
        return super().summed(x)

    def of(self, targets: int) -> slice:
        """Which of the targets are of this process, in a row; one stands in for none."""
        begin, end = (targets * each // self.size for each in (self.rank, self.rank + 1))
        return slice(begin, end) if begin < end else slice(0, 1)

    def weighted(self, batch: Batch, mine: int, targets: int, examples: int) -> Batch:
        """The batch of this process with its share of the loss.

        Args:
            batch: with the mean loss over `mine` targets.
            targets: of all processes.
            examples: nodes, graphs or links of all processes, which `of` split.
        """
        idle = examples * (self.rank + 1) // self.size == examples * self.rank // self.size
        share = 0.0 if idle else mine / max(targets, 1)

        def loss(outputs: Tensor) -> Tensor:  # of no targets the mean is not a number
            return batch.loss(outputs) * share if share else outputs.sum() * 0.0

        return replace(batch, loss=loss, targets=targets, idle=idle)

    def followed(self, batches: Iterator[Batch], seed: int, number: int) -> Iterator[Batch]:
        """The batches of an epoch as they are trained on, with dropout of this process's own."""
        self.edges, self.summed_bytes, self.scale = 0, 0, 1.0
        state = np.random.SeedSequence((seed, number, self.rank)).generate_state(1, np.uint64)
        torch.manual_seed(int(state.view(np.int64)[0]))
        try:
            for batch in batches:
                self.weight = float(not batch.idle)
                yield batch
        finally:
            self.weight = self.scale = 1 / self.size


def add_gradients(model: Module, loss: Tensor, sums: Sums, scale: float = 1.0) -> Tensor:
    """Sum loss and gradients, times `scale`, over all processes, in one message; returns the loss.

    A parameter has a gradient on all processes or on none.
    """
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    message = torch.cat([loss.view(1), *(each.flatten() for each in gradients)])
    total = sums.summed(message if scale == 1 else message * scale)
    loss, *of_all = total.split([1, *(each.numel() for each in gradients)])
    for gradient, each in zip(gradients, of_all, strict=True):
        gradient.copy_(each.view_as(gradient))
    return loss.squeeze(0).clone()  # kept to the end of the epoch, as the message need not be


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
