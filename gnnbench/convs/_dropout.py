"""The dropout layers of a model on kernels."""

from __future__ import annotations

from math import prod
from typing import Any

from torch.nn import Dropout, Module

from gnnbench.convs import _layers
from gnnbench.ops.features import dropout
from gnnbench.ops.kernels import Kernels
from gnnbench.results.schema import Binding


def bind(model: Module, kernels: Kernels, first_node: int | None = None) -> list[Binding]:
    """Let `kernels` draw what the layers of `model` drop, where they have an op for it.

    Args:
        first_node: how many nodes of other processes come before those whose features a layer is given; None where
            there are no others. Each process then drops what one alone would drop of its nodes, by a hash on all
            kernels, for all processes draw the same random numbers.
    """
    layers: list[tuple[str, Any]] = [
        (path, layer)
        for path, layer in model.named_modules()
        if type(layer) is Dropout and layer.p and not _layers.has_own_forward(layer)
    ]
    accelerated = "dropout" in kernels.accelerated
    if first_node is None and not accelerated:
        return []
    for _, layer in layers:
        layer.forward = _layers.Equivalent(_forward, layer, kernels, first_node or 0)
    provider = kernels.name if accelerated else "torch"
    return [
        Binding(module=path, conv="Dropout", kernels={"dropout": provider}, rewrites=["dropout"])
        for path, _ in layers
    ]


def _forward(layer: Dropout, kernels: Kernels, first_node: int, x: Any) -> Any:
    return dropout(kernels, x, layer.p, layer.training, first_node * prod(x.shape[1:]))
