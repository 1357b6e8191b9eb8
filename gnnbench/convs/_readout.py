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
    """Let the readout of `model`, if any, take a Graph whose rows are graphs and whose columns are nodes."""
    readout: Any = getattr(model, "readout", None)
    if readout is None:
        return []

    def pooled(x: Tensor, segments: Graph) -> Tensor:
        return spmm(kernels, segments, x, reduce=readout.reduce)

    def highest(x: Tensor, segments: Graph) -> Tensor:
        """Equal nodes, as at symmetric places of a molecule, share the gradient like in PyG's pooling."""
        graph_of_node = segments.transpose.col
        top = spmm(kernels, segments, x.detach(), reduce="max").index_select(0, graph_of_node)
        tied = (x == top).to(x.dtype)
        share = tied / spmm(kernels, segments, tied).index_select(0, graph_of_node)
        return spmm(kernels, segments, x * share)

    readout.forward = highest if readout.reduce == "max" else pooled
    ops = ["spmm", "spmm_max"] if readout.reduce == "max" else ["spmm"]
    who = {op: kernels.name if op in kernels.accelerated else "torch" for op in ops}
    return [Binding(module="readout", conv="Readout", kernels=who)]
