"""The linear layers of a model on kernels, those within its convs too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor

from gnnbench.convs import _layers
from gnnbench.ops._custom import is_transformed
from gnnbench.ops.linear import linear
from gnnbench.results.schema import Binding

if TYPE_CHECKING:
    from torch.nn import Module

    from gnnbench.ops.kernels import Kernels


def bind(model: Module, kernels: Kernels) -> list[Binding]:
    """Let `kernels`, where they are faster at it, compute plain linear layers whose weights are trained."""
    if "linear" not in kernels.accelerated:
        return []
    layers: list[tuple[str, Any]] = [
        (path, layer) for path, layer in model.named_modules() if _layers.is_plain_linear(layer)
    ]
    for _, layer in layers:
        layer.forward = _layers.Equivalent(_forward, layer, kernels)
    return [Binding(module=path, conv="Linear", kernels={"linear": kernels.name}) for path, layer in layers]


def _forward(layer: Any, kernels: Kernels, x: Any) -> Tensor:
    weight, bias = layer.weight, layer.bias
    trains = type(x) is Tensor and weight.requires_grad and not is_transformed(x, weight, bias)
    if trains and kernels.pays("linear", x, weight):
        return linear(kernels, x, weight, bias)
    return F.linear(x, weight, bias)
