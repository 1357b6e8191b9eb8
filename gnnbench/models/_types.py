"""Graphs of several types: what a model of them is made for."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from gnnbench.config import ModelConfig, Positive


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
