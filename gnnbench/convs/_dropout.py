"""The dropout layers of a model on kernels."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.nn import Dropout, Module

from gnnbench.ops.features import dropout
from gnnbench.ops.kernels import Kernels
from gnnbench.results.schema import Binding


def bind(model: Module, kernels: Kernels) -> list[Binding]:
    """Let `kernels` draw what the layers of `model` drop, where they have an op for it."""
    layers: list[tuple[str, Any]] = [
        (path, layer) for path, layer in model.named_modules() if type(layer) is Dropout and layer.p
    ]
    if "dropout" not in kernels.accelerated:
        return []
    for _, layer in layers:
        layer.forward = partial(_forward, layer, kernels)
    return [
        Binding(module=path, conv="Dropout", kernels={"dropout": kernels.name}, rewrites=["dropout"])
        for path, _ in layers
    ]


def _forward(layer: Dropout, kernels: Kernels, x: Any) -> Any:
    return dropout(kernels, x, layer.p, layer.training)
