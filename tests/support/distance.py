"""A family of attention that is not the package's: scores are exp(-(query[i] - key[j])^2), of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.families import DeviceFamily
from gnnbench.graph import Graph
from gnnbench.ops.families import Family, Inputs

if TYPE_CHECKING:
    from gnnbench.ops.kernels import Kernels


class Distance(Family):
    inputs: ClassVar[dict[str, str]] = {"query": "NH", "key": "MH", "value": "MHD"}
    gathers: ClassVar[tuple[int, int]] = 1, 2

    def scores(self, kernels: Kernels, graph: Graph, inputs: Inputs, slope: float) -> Tensor:
        return _differences(graph, inputs).square().neg().exp()

    def gradients(
        self, kernels: Kernels, graph: Graph, inputs: Inputs, slope: float, grad_score: Tensor, grad_value: Tensor
    ) -> Inputs:
        query, key, _ = inputs
        grad = -2 * grad_score * _differences(graph, inputs) * self.scores(kernels, graph, inputs, slope)
        grad_key = torch.zeros_like(key).index_add_(0, graph.col, -grad)
        return torch.zeros_like(query).index_add_(0, graph.row, grad), grad_key, grad_value


def _differences(graph: Graph, inputs: Inputs) -> Tensor:
    query, key, _ = inputs
    return query[graph.row] - key[graph.col.long()]


@jit
def score(query: tensor, key: tensor, att: tensor, SLOPE: constexpr) -> tensor:
    difference = query - key
    return tl.exp(-difference * difference)


@jit
def gradient(grad_score: tensor, query: tensor, key: tensor, other: tensor, SLOPE: constexpr) -> tensor:
    difference = query + key - 2 * other  # of this end from the other
    return -2 * grad_score * difference * tl.exp(-difference * difference)


FAMILY, ON_DEVICE = Distance(), DeviceFamily(score, gradient)
