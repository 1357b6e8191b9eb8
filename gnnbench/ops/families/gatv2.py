"""GATv2: <att, leaky_relu(query[i] + key[j])>, both ends jointly (Brody et al. 2022, equation 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from gnnbench.graph import Graph
from gnnbench.ops.families._family import Family, Inputs, sums

if TYPE_CHECKING:
    from gnnbench.ops.kernels import Kernels


class GatV2(Family):
    """query is the transformed destinations, key the transformed sources, which are the value too."""

    inputs: ClassVar[dict[str, str]] = {"query": "NHC", "key": "MHC", "att": "HC"}
    gathers: ClassVar[tuple[int, int]] = 1, 3

    def roles(self, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        query, key, att = inputs
        return query, key, key, att

    def scores(self, kernels: Kernels, graph: Graph, inputs: Inputs, slope: float) -> Tensor:
        return (F.leaky_relu(sums(graph, inputs), slope) * inputs[2]).sum(-1)

    def gradients(
        self, kernels: Kernels, graph: Graph, inputs: Inputs, slope: float, grad_score: Tensor, grad_value: Tensor
    ) -> Inputs:
        query, _, att = inputs
        ends = sums(graph, inputs)
        grad_att = (grad_score.unsqueeze(-1) * F.leaky_relu(ends, slope)).sum(0)
        grad = grad_score.unsqueeze(-1) * att
        grad = torch.where(ends > 0, grad, grad * slope)
        grad_query = torch.zeros_like(query).index_add_(0, graph.row, grad)
        return grad_query, grad_value.index_add_(0, graph.col, grad), grad_att

    def completed(self, inputs: Inputs, grad_query: Tensor, grad_key: Tensor, grad_value: Tensor) -> Inputs:
        """Passes leave `att` out: leaky_relu(u) = leaky_relu'(u) * u, so that its gradient follows from theirs."""
        query, key, att = inputs
        grad_att = (key * grad_key).sum(0) + (query * grad_query).sum(0)
        return grad_query * att, grad_value.addcmul_(grad_key, att), grad_att


FAMILY = GatV2()
