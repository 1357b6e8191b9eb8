"""Links of a graph, and several types of nodes: what models are made for, and are given."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field, model_validator

from gnnbench.config import ModelConfig, Positive

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import torch


def width_of_node(config: ModelConfig) -> int:
    """Return the width of what the encoder of a model of links gives for a node."""
    return config.out_channels or config.hidden


class Links(NamedTuple):
    """A graph whose links a model predicts.

    Attributes:
        nodes: of the graph.
        relations: types of links.
        embedding: whether vectors are trained for nodes, in place of features.
    """

    nodes: int
    relations: int = 1
    embedding: bool = False


class Pairs(NamedTuple):
    """Pairs of nodes to score.

    Attributes:
        nodes: [2, P] int64, rows of the vectors of nodes.
        relation: [P] int64 type of each; None of one type.
        phase: surrounds the parts of a forward.
    """

    nodes: torch.Tensor
    relation: torch.Tensor | None = None
    phase: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()


class Types(NamedTuple):
    """A graph of several types of nodes and edges.

    Attributes:
        nodes: how many there are of each type.
        widths: of the features of each type, or of the vectors that are trained in their place.
        trained: the types with such vectors.
        relations: types of sources, names, and types of destinations.
        target: the type whose nodes are classified.
    """

    nodes: dict[str, int]
    widths: dict[str, int]
    trained: list[str]
    relations: list[tuple[str, str, str]]
    target: str


class TypedConfig(ModelConfig):
    """Models of graphs of several types, whose layers are followed by the activation alone."""

    norm: Literal["none"] = "none"
    residual: Literal[False] = Field(False, description="not of graphs of several types")
    readout: Literal["none"] = Field("none", description="not of graphs of several types")
    jk: Literal["none"] = Field("none", description="not of graphs of several types")


class HeadsConfig(TypedConfig):
    """Models of these whose layers have heads; `hidden` is the width of all heads together."""

    heads: Positive = 8

    @model_validator(mode="after")
    def _heads_divide(self) -> HeadsConfig:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not divisible by heads {self.heads}")
        return self
