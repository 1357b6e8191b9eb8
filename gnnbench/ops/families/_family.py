"""A family of attention: how an edge is scored, and the gradients of the score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from torch import Tensor

from gnnbench.graph import Graph
from gnnbench.ops.dropout import Dropout

if TYPE_CHECKING:
    from gnnbench.ops.kernels import Kernels

Inputs = tuple[Tensor, ...]


class Family(ABC):
    """A score function, in plain torch.

    Attributes:
        name: the name of its file.
        op: name of its op, `<name>_attention`.
        inputs: name -> dimensions of every tensor: N destinations, M sources, H heads, C and D channels.
        sources: places among the inputs of those that are of sources.
        parts: ops that the plain computation consists of.
        gathers: rows of channels that forward and backward fetch for every edge.
        keeps_positive: whether scores are leaky_relu(query[i] + key[j]). What edges with a positive sum contribute
            to each node, kept by forward, then spares the backward of query its pass over the edges.
    """

    name: ClassVar[str]
    op: ClassVar[str]
    inputs: ClassVar[dict[str, str]]
    sources: ClassVar[tuple[int, ...]]
    parts: ClassVar[tuple[str, ...]] = ("edge_softmax", "spmm")
    gathers: ClassVar[tuple[int, int]]
    keeps_positive: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.name = cls.__module__.rpartition(".")[2]
        cls.op = f"{cls.name}_attention"
        cls.sources = tuple(place for place, dims in enumerate(cls.inputs.values()) if dims[0] == "M")

    def roles(self, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """query, of destinations; key and value, of sources; and the parameter that scores are weighed by."""
        query, key, value = inputs
        return query, key, value, None

    @abstractmethod
    def scores(self, kernels: Kernels, graph: Graph, inputs: Inputs, slope: float) -> Tensor:
        """The score of every edge and head, [E, H]; `slope` is that of a leaky ReLU, where there is one."""

    def positive(self, graph: Graph, inputs: Inputs) -> Tensor:
        """Which edges have query[i] + key[j] > 0, [E, H] bool, for families that keep it."""
        raise NotImplementedError(f"{self.name} does not keep which scores are positive")

    @abstractmethod
    def gradients(
        self, kernels: Kernels, graph: Graph, inputs: Inputs, slope: float, grad_score: Tensor, grad_value: Tensor
    ) -> Inputs:
        """The gradients of the inputs, from those of the scores [E, H] and of the values [M, H, D]."""

    def completed(self, inputs: Inputs, grad_query: Tensor, grad_key: Tensor, grad_value: Tensor) -> Inputs:
        """The gradients of the inputs, from what a pass over the edges accumulates for every node.

        It may write to those that it is given.
        """
        return grad_query, grad_key, grad_value


class Attention(NamedTuple):
    """Name what attention is to compute; `roles` are those of `Family.roles`.

    Attributes:
        inputs: contiguous, of the shapes in `family.inputs`, in that order.
        slope: of the leaky ReLU, in families that have one.
        dropout: of the weights; None for none.
    """

    family: Family
    inputs: Inputs
    slope: float
    dropout: Dropout | None

    @property
    def roles(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        return self.family.roles(self.inputs)


def sums(graph: Graph, inputs: Inputs) -> Tensor:
    """query[i] + key[j] of every edge, in their shape but for the first dimension."""
    return inputs[0][graph.row] + inputs[1][graph.col.long()]
