"""From the nodes of a graph to its links: an encoder, and what scores a pair of the vectors that it gives."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Dropout, Embedding, Linear, Module, ModuleList, ReLU
from torch_geometric.nn import InnerProductDecoder

from gnnbench.config import ModelConfig
from gnnbench.errors import ConfigError
from gnnbench.models._ends import Links, Pairs, width_of_node
from gnnbench.models._stack import Stack


class Dot(Module):
    """PyG's dot product of both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.product = InnerProductDecoder()

    def forward(self, z: Tensor, pairs: Pairs) -> Tensor:
        """Scores [P] of pairs of rows of z [N, F]."""
        scores: Tensor = self.product(z, pairs.nodes, sigmoid=False)
        return scores

    def ends(self, z: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of sources and of destinations, and pairs [2, P] of these whose dot products are the scores."""
        return z, z, pairs.nodes


class Mlp(Module):
    """A network on the product of both ends, as in OGB's examples: ReLU and dropout between its layers."""

    def __init__(self, width: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        widths = [width, *[hidden] * (layers - 1), 1]
        self.lins = ModuleList(Linear(*ends) for ends in pairwise(widths))
        self.activation, self.drop = ReLU(), Dropout(dropout)

    def forward(self, z: Tensor, pairs: Pairs) -> Tensor:
        """Scores [P] of pairs of rows of z [N, F]."""
        return self.score(z[pairs.nodes[0]], z[pairs.nodes[1]])

    def score(self, src: Tensor, dst: Tensor) -> Tensor:
        """Scores [P] of pairs with the ends src and dst [P, F]."""
        x = src * dst
        for layer, linear in enumerate(self.lins):
            x = linear(self.drop(self.activation(x)) if layer else x)
        return x.squeeze(-1)


class DistMult(Module):
    """A dot product in which each type of link weights the channels (Yang et al. 2015)."""

    def __init__(self, width: int, relations: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(relations, width))
        torch.nn.init.xavier_uniform_(self.weight)

    def forward(self, z: Tensor, pairs: Pairs) -> Tensor:
        """Scores [P] of pairs of rows of z [N, F]."""
        src, dst = pairs.nodes
        weight = self.weight[0] if pairs.relation is None else self.weight[pairs.relation]
        return (z[src] * weight * z[dst]).sum(-1)

    def ends(self, z: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """As of `Dot`: a row of sources for each node and type of link that there are."""
        if pairs.relation is None:
            return z * self.weight[0], z, pairs.nodes
        nodes = z.size(0)
        used, row = (pairs.relation * nodes + pairs.nodes[0]).unique(return_inverse=True)
        src = z.index_select(0, used % nodes) * self.weight.index_select(0, used // nodes)
        return src, z, torch.stack([row, pairs.nodes[1]])


class LinkStack(Stack):
    """A stack of convs without activation after the last, then a decoder; `embed` trains vectors of nodes."""

    def __init__(self, config: ModelConfig, family: ModuleType, in_channels: int, links: Links) -> None:
        if config.readout != "none":
            raise ConfigError(f"model.readout={config.readout} is of whole graphs, not of links; leave it out")
        width = width_of_node(config)
        super().__init__(config, family, in_channels, width)
        if links.embedding:
            self.embed = Embedding(links.nodes, in_channels)
            torch.nn.init.xavier_uniform_(self.embed.weight)  # as OGB's examples do
        self.decoder: Module = {
            "dot": Dot,
            "mlp": lambda: Mlp(width, config.hidden, config.head_layers, config.dropout),
            "distmult": lambda: DistMult(width, links.relations),
        }[config.decoder]()

    def forward(self, x: Tensor, adj: Any, pairs: Pairs | None = None) -> Tensor:  # type: ignore[override]
        """Scores [P] of pairs, or without them the vectors [N, F] that the decoder takes.

        x is [N, in_channels] features, or [N] int64 ids where vectors are trained.
        """
        if pairs is None:
            return super().forward(x, adj)
        with pairs.phase("encoder"):
            z = super().forward(x, adj)
        with pairs.phase("decoder"):
            scores: Tensor = self.decoder(z, pairs)
        return scores
