"""The batch norms of a model on kernels, each in one pass with the ReLU after it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.nn import BatchNorm1d, Module, ReLU, Sequential

from gnnbench.ops.norm import batch_norm
from gnnbench.results.schema import Binding

if TYPE_CHECKING:
    from torch import Tensor

    from gnnbench.ops.kernels import Kernels


def bind(model: Module, kernels: Kernels) -> list[Binding]:
    """Let `kernels` normalise batches in training, if that is faster.

    A ReLU that follows a norm in a Sequential has nothing left to do. A model that has norms and an activation has
    a method `activated` that calls both.
    """
    if "batch_norm" not in kernels.accelerated:
        return []
    paths = []
    uses = Counter(child for module in model.modules() for child in module._modules.values())
    for path, layers in model.named_modules():
        if isinstance(layers, Sequential):
            for index, (norm, after) in enumerate(pairwise(layers)):
                if type(norm) is BatchNorm1d and type(after) is ReLU and uses[norm] == uses[after] == 1:
                    norm.forward = partial(_in_sequence, norm, kernels, layers, index)  # type: ignore[method-assign]
                    after.forward = partial(_after, norm, layers, index)  # type: ignore[method-assign]
                    paths.append(f"{path}.{index}")
    stack: Any = model
    if hasattr(stack, "activated"):
        stack.activated = partial(_activated, stack, kernels)
        paths += [f"norms.{index}" for index, norm in enumerate(stack.norms) if type(norm) is BatchNorm1d]
    return [Binding(module=path, conv="BatchNorm1d", kernels={"batch_norm": kernels.name}) for path in paths]


def _in_sequence(norm: Any, kernels: Kernels, layers: Sequential, index: int, x: Tensor) -> Tensor:
    """What the norm returns, and a ReLU if it still follows."""
    return _normalised(norm, kernels, x, relu=type(layers[index + 1]) is ReLU)


def _after(norm: Module, layers: Sequential, index: int, x: Tensor) -> Tensor:
    """x, unless the norm was replaced."""
    return x if layers[index] is norm else F.relu(x)


def _activated(model: Any, kernels: Kernels, layer: int, x: Tensor) -> Tensor:
    norm, relu = model.norms[layer], model.activation is F.relu
    if type(norm) is not BatchNorm1d:
        out: Tensor = model.activation(norm(x))
        return out
    x = _normalised(norm, kernels, x, relu)
    return x if relu else model.activation(x)


def _normalised(norm: Any, kernels: Kernels, x: Tensor, relu: bool) -> Tensor:
    """What the norm returns, and a ReLU makes of it."""
    usual = norm.training and norm.affine and norm.track_running_stats and norm.momentum is not None
    if not usual or x.dim() != 2 or len(x) < 2 or x.dtype != norm.weight.dtype or torch.compiler.is_compiling():
        out: Tensor = BatchNorm1d.forward(norm, x)
        return F.relu(out) if relu else out
    out, mean, var = batch_norm(kernels, x, norm.weight, norm.bias, norm.eps, relu)
    with torch.no_grad():
        norm.num_batches_tracked += 1
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(var * (len(x) / (len(x) - 1)), norm.momentum)
    return out
