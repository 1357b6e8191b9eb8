"""The encoders of a model on kernels: a sum of embeddings is an spmm over the rows of their tables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from gnnbench.errors import DatasetError
from gnnbench.graph import Graph
from gnnbench.ops.spmm import spmm
from gnnbench.results.schema import Binding

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from gnnbench.ops.kernels import Kernels

OGB = "ogb.graphproppred.mol_encoder"


def bind(model: Module, kernels: Kernels) -> list[Binding]:
    """Let `kernels` sum what OGB's encoders of atoms and bonds look up, on the CPU; on GPUs none was measured."""
    if kernels.device_type != "cpu" or "spmm" not in kernels.accelerated:
        return []
    encoders: list[tuple[str, Any]] = [
        (path, layer) for path, layer in model.named_modules() if type(layer).__module__ == OGB
    ]
    for _, layer in encoders:
        layer.forward = partial(_forward, layer, kernels)
    return [
        Binding(module=path, conv=type(layer).__name__, kernels={"spmm": kernels.name}) for path, layer in encoders
    ]


def _forward(encoder: Any, kernels: Kernels, categories: Tensor) -> Tensor:
    """Embeddings [N, F], each the sum of a row of every table, of categories [N, K] int64, one for each table.

    Raises:
        DatasetError: a category that its table lacks.
    """
    if torch.compiler.is_compiling():
        out: Tensor = type(encoder).forward(encoder, categories)
        return out
    (tables,) = encoder.children()
    sizes = torch.tensor([table.num_embeddings for table in tables])
    lacking = (categories < 0) | (categories >= sizes)
    if bool(lacking.any()):
        row, column = lacking.nonzero()[0].tolist()
        raise DatasetError(
            f"category {int(categories[row, column])} in row {row}, column {column} is not one of the "
            f"{int(sizes[column])} that {type(encoder).__name__} knows, numbered from 0; correct the features"
        )
    graph = _looked_up(categories, sizes, kernels)
    return spmm(kernels, graph, torch.cat([table.weight for table in tables]))


@torch.inference_mode(False)
def _looked_up(categories: Tensor, sizes: Tensor, kernels: Kernels) -> Graph:
    """From the rows of all tables, one below the other, to the rows that look them up."""
    rows, columns = categories.shape
    rowptr = torch.arange(0, rows * columns + 1, columns)
    col = (categories + sizes.cumsum(0) - sizes).to(torch.int32)
    return Graph(rowptr, col.flatten(), int(sizes.sum()), layout=kernels)
