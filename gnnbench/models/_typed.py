"""The model of graphs of several types: PyG's convs over all relations, and a linear layer of one type."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import Dropout, Embedding, Linear, Module, ModuleList
from torch_geometric.nn.module_dict import ModuleDict

from gnnbench.config import ModelConfig, Positive, heads_divide


class TypedConfig(ModelConfig):
    """Models of graphs of several types, whose layers are followed by the activation alone."""

    norm: Literal["none"] = "none"
    residual: Literal[False] = Field(False, description="not of graphs of several types")
    readout: Literal["none"] = Field("none", description="not of graphs of several types")
    jk: Literal["none"] = Field("none", description="not of graphs of several types")


class HeadsConfig(TypedConfig):
    """Models of these whose layers have heads; `hidden` is the width of all heads together."""

    heads: Positive = 8

    _heads_divide = model_validator(mode="after")(heads_divide)


class Types(NamedTuple):
    """A graph of several types of nodes and edges."""

    nodes: dict[str, int]  # how many there are of each type
    widths: dict[str, int]  # of the features of each type, or of the vectors that are trained in their place
    trained: list[str]  # the types with such vectors
    relations: list[tuple[str, str, str]]  # types of sources, names, and types of destinations
    target: str  # the type whose nodes are classified


class TypedStack(Module):
    """`config.layers` convs of the width `hidden`, each followed by the activation, then a linear layer.

    Types without features have vectors that are trained. A family that `projects` gives all types the width
    `hidden` before the first conv. One that `joins` numbers the nodes of all types together, and its convs take
    the type of every edge; others take features and edges by type.
    """

    def __init__(self, config: ModelConfig, family: ModuleType, types: Types, out_channels: int) -> None:
        super().__init__()
        self.drop = Dropout(config.dropout)
        self.activation: Any = getattr(F, config.activation)
        self.activates, self.joins = getattr(family, "activates", True), getattr(family, "joins", False)
        self.target = types.target
        hidden = dict.fromkeys(types.widths, config.hidden)
        self.embed = ModuleDict({kind: Embedding(types.nodes[kind], types.widths[kind]) for kind in types.trained})
        for vectors in self.embed.parameters():
            torch.nn.init.xavier_uniform_(vectors)
        self.encode = None
        if projects := getattr(family, "projects", False):
            self.encode = ModuleDict({kind: Linear(width, config.hidden) for kind, width in types.widths.items()})
        widths = [hidden if projects else types.widths, *[hidden] * (config.layers - 1)]
        self.convs = ModuleList(family.conv(config, types, each) for each in widths)
        self.decode = Linear(config.hidden, out_channels)

    def forward(self, x: dict[str, Tensor], adj: Any, edge_attr: Tensor | None = None) -> Tensor:
        """Logits [n, out_channels] of the nodes of one type.

        Args:
            x: [n, F] features of each type, or [n] int64 ids where vectors are trained.
            adj: by relation; or of all, with `edge_attr` [E] int64, the relation of every edge.
        """
        h: Any = self.enter(x)
        sizes = {kind: len(own) for kind, own in h.items()}
        if self.joins:  # once, as every layer would copy all
            h = torch.cat([*h.values()])
        for layer in range(len(self.convs)):
            h = self._step(layer, h, adj, edge_attr)
        return self.leave((_apart(h, sizes) if self.joins else h)[self.target])

    def enter(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what the first conv is given of features and ids."""
        h = {kind: self.embed[kind](own) if kind in self.embed else own for kind, own in x.items()}
        if self.encode is None:
            return h
        return {kind: self.activation(self.encode[kind](self.drop(own))) for kind, own in h.items()}

    def step(
        self, layer: int, h: dict[str, Tensor], adj: Any, edge_attr: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Apply a conv and what follows it to the nodes of every type."""
        if self.joins:
            sizes = {kind: len(own) for kind, own in h.items()}
            return _apart(self._step(layer, torch.cat([*h.values()]), adj, edge_attr), sizes)
        return self._step(layer, h, adj, edge_attr)

    def leave(self, x: Tensor) -> Tensor:
        """Logits of what the last conv gives of the classified type."""
        return self.decode(self.drop(x))

    def _step(self, layer: int, h: Any, adj: Any, edge_attr: Tensor | None) -> Any:
        """Apply a conv and what follows it to nodes by type, or joined where the family joins them."""
        if self.joins:
            return self.activation(self.convs[layer](self.drop(h), adj, edge_attr))
        h = self.convs[layer]({kind: self.drop(own) for kind, own in h.items()}, adj)
        return {kind: self.activation(own) for kind, own in h.items()} if self.activates else h


def _apart(joined: Tensor, sizes: dict[str, int]) -> dict[str, Tensor]:
    return dict(zip(sizes, joined.split([*sizes.values()]), strict=True))
