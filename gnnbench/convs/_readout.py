"""The readout of a model on kernels: pooling is an spmm over the rows of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnnbench.ops.spmm import spmm
from gnnbench.results.schema import Binding

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from gnnbench.graph import Graph
    from gnnbench.ops.kernels import Kernels


def bind(model: Module, kernels: Kernels) -> list[Binding]:
    """Let the readout of `model`, if it has one, take a Graph whose rows are graphs and whose columns are nodes."""
    readout: Any = getattr(model, "readout", None)
    if readout is None:
        return []

    def pooled(x: Tensor, segments: Graph) -> Tensor:
        return spmm(kernels, segments, x, reduce=readout.reduce)

    readout.forward = pooled
    op = "spmm_max" if readout.reduce == "max" else "spmm"
    who = kernels.name if op in kernels.accelerated else "torch"
    return [Binding(module="readout", conv="readout", kernels={op: who})]
