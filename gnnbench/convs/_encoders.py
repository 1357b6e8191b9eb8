"""The encoders of a model on kernels: OGB's sums of an embedding for each category."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Embedding

from gnnbench.convs import _layers
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
        (path, layer)
        for path, layer in model.named_modules()
        if type(layer).__module__ == OGB and not _layers.has_own_forward(layer)
    ]
    for _, layer in encoders:
        layer.forward = _layers.Equivalent(_forward, layer, kernels)
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
    if not _are_plain(tables, categories):
        out: Tensor = type(encoder).forward(encoder, categories)
        return out
    return embedding_sum(kernels, [table.weight for table in tables], categories)


def _are_plain(tables: Any, categories: Tensor) -> bool:
    """Return whether OGB does nothing but add a row of every table, all of one type and width, nobody watching."""
    if categories.dtype != torch.int64 or categories.dim() != 2 or categories.size(1) != len(tables):
        return False
    if not all(_layers.is_untouched(table, Embedding) and _only_looks_up(table) for table in tables):
        return False
    return len({(table.weight.dtype, table.weight.size(1)) for table in tables}) == 1


def _only_looks_up(table: Embedding) -> bool:
    return (
        table.padding_idx is None and table.max_norm is None and not table.scale_grad_by_freq and not table.sparse
    )
