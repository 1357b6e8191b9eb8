"""GAT: leaky_relu(query[i] + key[j]), a number of each end, computed per node (Veličković et al. 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from gnnbench.graph import Graph
from gnnbench.ops.families._family import Family, Inputs, sums

if TYPE_CHECKING:
    from gnnbench.ops.kernels import Kernels


class Gat(Family):
    """query is `att_dst` times the destinations, key `att_src` times the sources, value the sources."""

    inputs: ClassVar[dict[str, str]] = {"query": "NH", "key": "MH", "value": "MHC"}
    gathers: ClassVar[tuple[int, int]] = 1, 2
    keeps_positive: ClassVar[bool] = True

    def scores(self, kernels: Kernels, graph: Graph, inputs: Inputs, slope: float) -> Tensor:
        return F.leaky_relu(sums(graph, inputs), slope)

    def positive(self, graph: Graph, inputs: Inputs) -> Tensor:
        return sums(graph, inputs) > 0

    def gradients(
        self, kernels: Kernels, graph: Graph, inputs: Inputs, slope: float, grad_score: Tensor, grad_value: Tensor
    ) -> Inputs:
        query, key, _ = inputs
        grad = torch.where(self.positive(graph, inputs), grad_score, grad_score * slope)
        grad_key = torch.zeros_like(key).index_add_(0, graph.col, grad)
        return torch.zeros_like(query).index_add_(0, graph.row, grad), grad_key, grad_value


FAMILY = Gat()
