"""The encoders of a model on kernels: OGB's sums of an embedding for each category."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gnnbench.ops.embedding import embedding_sum
from gnnbench.results.schema import Binding

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from gnnbench.ops.kernels import Kernels

OGB = "ogb.graphproppred.mol_encoder"


def bind(model: Module, kernels: Kernels) -> list[Binding]:
    """Let `kernels` sum what OGB's encoders of atoms and bonds look up, if that is faster."""
    if "embedding_sum" not in kernels.accelerated:
        return []
    encoders: list[tuple[str, Any]] = [
        (path, layer) for path, layer in model.named_modules() if type(layer).__module__ == OGB
    ]
    for _, layer in encoders:
        layer.forward = partial(_forward, layer, kernels)
    return [
        Binding(module=path, conv=type(layer).__name__, kernels={"embedding_sum": kernels.name})
        for path, layer in encoders
    ]


def _forward(encoder: Any, kernels: Kernels, categories: Tensor) -> Tensor:
    """Embeddings [N, F], each the sum of a row of every table, of categories [N, K] int64, one for each table.

    Raises:
        DatasetError: a category that its table lacks.
    """
    (tables,) = encoder.children()
    weights = [table.weight for table in tables]
    if len({weight.dtype for weight in weights}) > 1:  # which OGB adds in the type of the first
        out: Tensor = type(encoder).forward(encoder, categories)
        return out
    return embedding_sum(kernels, weights, categories)
