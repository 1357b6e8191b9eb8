"""The batch norms of a model on kernels, each in one pass with the ReLU after it."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.nn import BatchNorm1d, Module, ReLU, Sequential

from gnnbench.convs import _layers
from gnnbench.ops._custom import is_transformed
from gnnbench.ops.norm import batch_norm
from gnnbench.results.schema import Binding

if TYPE_CHECKING:
    from torch import Tensor

    from gnnbench.ops.kernels import Kernels


def bind(model: Module, kernels: Kernels) -> list[Binding]:
    """Let `kernels` normalise batches in training, if that is faster.

    A Sequential runs each norm with the ReLU that follows it then, unless someone else sees what is between them;
    both layers stay as they are. A model with norms and an activation has a method `activated` that calls both.
    """
    if "batch_norm" not in kernels.accelerated:
        return []
    paths = []
    for path, layers in model.named_modules():
        if _layers.is_untouched(layers, Sequential):
            pairs = [f"{path}.{index}" for index, pair in enumerate(pairwise(layers)) if _are_norm_and_relu(*pair)]
            if pairs:
                layers.forward = _layers.Equivalent(_in_sequence, layers, kernels)
                paths += pairs
    stack: Any = model
    if hasattr(stack, "activated"):
        stack.activated = partial(_activated, stack, kernels)
        paths += [f"norms.{index}" for index, norm in enumerate(stack.norms) if type(norm) is BatchNorm1d]
    return [Binding(module=path, conv="BatchNorm1d", kernels={"batch_norm": kernels.name}) for path in paths]


def _in_sequence(layers: Sequential, kernels: Kernels, x: Any) -> Any:
    left = list(layers)
    while left:
        layer = left.pop(0)
        if left and _are_norm_and_relu(layer, left[0]):
            left.pop(0)
            x = _normalised(layer, kernels, x, relu=True)
        else:
            x = layer(x)
    return x


def _are_norm_and_relu(norm: Module, after: Module) -> bool:
    return _layers.is_untouched(norm, BatchNorm1d) and _layers.is_untouched(after, ReLU)


def _activated(model: Any, kernels: Kernels, layer: int, x: Tensor) -> Tensor:
    norm, relu = model.norms[layer], model.activation is F.relu
    if not _layers.is_untouched(norm, BatchNorm1d):
        out: Tensor = model.activation(norm(x))
        return out
    x = _normalised(norm, kernels, x, relu)
    return x if relu else model.activation(x)


def _normalised(norm: Any, kernels: Kernels, x: Any, relu: bool) -> Tensor:
    """Apply a batch norm to x [N, F], and a ReLU to what it returns if `relu`."""
    if not _is_usual(norm, x):
        out: Tensor = BatchNorm1d.forward(norm, x)
        return F.relu(out) if relu else out
    out, mean, var = batch_norm(kernels, x, norm.weight, norm.bias, norm.eps, relu)
    with torch.no_grad():
        norm.num_batches_tracked += 1
        # By `.data`, for torch keeps both for the backward of its own batch norm, and does not count its updates.
        norm.running_mean.data.lerp_(mean, norm.momentum)
        norm.running_var.data.lerp_(var * (len(x) / (len(x) - 1)), norm.momentum)
    return out


def _is_usual(norm: Any, x: Any) -> bool:
    """Return whether a norm learns from x [N, F] what torch would, by the moments of the batch."""
    tensors = norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.num_batches_tracked
    if not norm.training or norm.momentum is None or not norm.eps > 0 or any(each is None for each in tensors):
        return False
    fits = x.dim() == 2 and len(x) > 1 and all(each.shape == x.shape[1:] for each in tensors[:4])
    return fits and all(each.dtype == x.dtype for each in tensors[:4]) and not is_transformed(x, *tensors)
