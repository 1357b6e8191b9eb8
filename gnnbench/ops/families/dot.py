"""Dot product: <query[i], key[j]>, which the caller scales (Vaswani et al. 2017; on graphs, Shi et al. 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from gnnbench.graph import Graph
from gnnbench.ops.families._family import Family, Inputs

if TYPE_CHECKING:
    from gnnbench.ops.kernels import Kernels


class Dot(Family):
    """Values may have other channels than keys."""

    inputs: ClassVar[dict[str, str]] = {"query": "NHC", "key": "MHC", "value": "MHD"}
    parts: ClassVar[tuple[str, ...]] = ("sddmm", "edge_softmax", "spmm")
    gathers: ClassVar[tuple[int, int]] = 2, 4

    def scores(self, kernels: Kernels, graph: Graph, inputs: Inputs, slope: float) -> Tensor:
        return kernels.sddmm(graph, *inputs[:2])

    def gradients(
        self, kernels: Kernels, graph: Graph, inputs: Inputs, slope: float, grad_score: Tensor, grad_value: Tensor
    ) -> Inputs:
        query, key, _ = inputs
        grad_key = kernels.spmm(graph.transpose, query, grad_score[graph.perm], "sum")
        return kernels.spmm(graph, key, grad_score, "sum"), grad_key, grad_value


FAMILY = Dot()
