"""The one model definition: convs with dropout, norm, activation and residual connections around them.

With links, what it gives for the nodes of a graph goes on to a decoder, which scores pairs of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Dropout, Embedding, Identity, LayerNorm, Linear, Module, ModuleList, ReLU
from torch_geometric.nn import InnerProductDecoder, JumpingKnowledge, pool

from gnnbench.config import ModelConfig
from gnnbench.errors import ConfigError

NORMS: dict[str, Callable[[int], Module]] = {"none": Identity, "batch": BatchNorm1d, "layer": LayerNorm}
POOLS = {"sum": pool.global_add_pool, "mean": pool.global_mean_pool, "max": pool.global_max_pool}


class Readout(Module):
    """PyG's pooling; backends with kernels put their own in place of `forward`."""

    def __init__(self, reduce: str) -> None:
        super().__init__()
        self.reduce = reduce

    def forward(self, x: Tensor, segments: tuple[Tensor, int]) -> Tensor:
        """[B, C] of nodes [N, C], of which `segments` says the graph [N] int64, and how many graphs there are."""
        graph_of_node, graphs = segments
        return POOLS[self.reduce](x, graph_of_node, graphs)


class Layer(NamedTuple):
    """Edges that one conv of a model aggregates over: from any of its inputs to the first `rows` of them."""

    adj: Any
    rows: int


class Stack(Module):
    """`config.layers` convs; each but the last is followed by norm, activation and residual connection.

    A family with `linear_ends` has convs without weights: a linear layer before them sets their width and
    one after them gives the logits. With a readout or jumping knowledge (Xu et al. 2018), every conv has the width
    `hidden`, and the last one is followed by norm and activation too; then come `config.head_layers` linear layers
    after the pooling, or one.

    Raises:
        ConfigError: convs are given features of edges, which the dataset lacks; or OGB is not installed.
    """

    def __init__(
        self,
        config: ModelConfig,
        family: ModuleType,
        in_channels: int,
        out_channels: int,
        encoder: str = "",
        edge_channels: int = 0,
    ) -> None:
        super().__init__()
        self.drop = Dropout(config.dropout)
        self.activation = getattr(F, config.activation)
        linear_ends = getattr(family, "linear_ends", lambda _: False)(config)
        hidden, pooled, jumps = config.hidden, config.readout != "none", config.jk != "none"
        first = hidden if linear_ends or encoder else in_channels
        last = hidden if linear_ends or pooled or jumps else out_channels
        widths = [first, *[hidden] * (config.layers - 1), last]
        self.encode = Linear(in_channels, hidden) if linear_ends and not encoder else None
        self.embed = _encoder("AtomEncoder", hidden) if encoder else None
        self.embed_edges: Module | None = None
        if getattr(family, "takes_edges", lambda _: False)(config):
            if not edge_channels:
                raise ConfigError(
                    f"model {config.name} takes features of edges, which the dataset lacks; choose a dataset that "
                    "has them, such as ogbg-molhiv, or a model that needs none, such as gin"
                )
            self.embed_edges = _encoder("BondEncoder", hidden) if encoder else Linear(edge_channels, hidden)
        self.convs = ModuleList(
            family.conv(config, *widths[i : i + 2], last=i == config.layers - 1 and not (pooled or jumps))
            for i in range(config.layers)
        )
        self.jump = JumpingKnowledge(config.jk) if jumps else None
        width = hidden * config.layers if config.jk == "cat" else hidden
        self.decode = Linear(width, out_channels) if (linear_ends or jumps) and not pooled else None
        followed = widths[1:] if pooled or jumps else widths[1:-1]
        self.norms = ModuleList(NORMS[config.norm](width) for width in followed)
        self.skips = ModuleList(
            Identity() if width == hidden else Linear(width, hidden, bias=False)
            for width in widths[: len(followed)]
            if config.residual
        )
        self.readout = Readout(config.readout) if pooled else None
        outputs = [width, *[hidden] * (config.head_layers - 1), out_channels]
        self.head = ModuleList(Linear(*ends) for ends in pairwise(outputs)) if pooled else None

    @property
    def input_changes(self) -> str:
        """Why the first conv never gets the same features twice in training; empty if it does."""
        if self.encode is not None or self.embed is not None:
            return "a layer with weights comes before the first conv"
        return f"model.dropout={self.drop.p:g} changes the features in every epoch" if self.drop.p else ""

    @property
    def multiplies_features(self) -> bool:
        """Return whether features meet nothing but dropout before the first conv, and nothing beside it."""
        drops: bool = type(self.drop) is Dropout and "forward" not in vars(self.drop)
        return drops and self.encode is None and self.embed is None and not self.skips

    def forward(self, x: Tensor, adj: Any, segments: Any = None, edge_attr: Tensor | None = None) -> Tensor:
        """Logits [N, out_channels] of features x [N, in_channels], or [B, out_channels] of `segments` of nodes.

        With a list of a `Layer` for each conv in place of `adj`, logits are of the rows of the last. A model with
        `embed_edges` needs `edge_attr` [E, edge_channels].
        """
        edges = () if self.embed_edges is None else (self.embed_edges(edge_attr),)
        x, every = self.enter(x), []
        for layer in range(len(self.convs)):
            x = self.step(layer, x, adj[layer] if isinstance(adj, list) else adj, *edges)
            if self.jump is not None:
                every.append(x)
        return self.leave(every or [x], segments)

    def enter(self, x: Tensor) -> Tensor:
        """Return what the first conv is given of the features."""
        if self.embed is not None:
            x = self.embed(x)
        return x if self.encode is None else self.activation(self.encode(self.drop(x)))

    def step(self, layer: int, x: Tensor, adj: Any, *edges: Tensor) -> Tensor:
        """Apply a conv and what follows it; of a `Layer`, outputs are of its rows."""
        if isinstance(adj, Layer):
            inputs = self.drop(x)
            out, x = self.convs[layer]((inputs, inputs[: adj.rows]), adj.adj), x[: adj.rows]
        else:
            out = self.convs[layer](self.drop(x), adj, *edges)
        if layer < len(self.norms):
            out = self.activated(layer, out)
            if self.skips:
                out = out + self.skips[layer](x)
        return out

    def leave(self, every: list[Tensor], segments: Any = None) -> Tensor:
        """Logits of the last layer's output, or of those of all layers with jumping knowledge."""
        x = every[-1]
        if self.jump is not None:
            x = self.jump([each[: len(x)] for each in every])
        if self.readout is not None and self.head is not None:
            x = self.readout(x, segments)
            for layer, linear in enumerate(self.head):
                x = linear(self.drop(self.activation(x) if layer else x))
        return x if self.decode is None else self.decode(self.drop(x))

    def activated(self, layer: int, x: Tensor) -> Tensor:
        """Apply norm and activation to the output of a conv; kernels may put their own in its place."""
        return self.activation(self.norms[layer](x))


def _encoder(name: str, width: int) -> Module:
    """OGB's sum of an embedding for each category."""
    try:
        from ogb.graphproppred import mol_encoder
    except ImportError:
        raise ConfigError(f"the categories of this dataset need OGB's {name}; run `pip install ogb`") from None
    return getattr(mol_encoder, name)(width)


class Links(NamedTuple):
    """A graph whose links a model predicts."""

    nodes: int  # of the graph
    relations: int = 1  # types of links
    embedding: bool = False  # whether vectors are trained for nodes, in place of features


class Pairs(NamedTuple):
    """Pairs of nodes to score; `phase` surrounds the parts of a forward."""

    nodes: Tensor  # [2, P] int64, rows of the vectors of nodes
    relation: Tensor | None = None  # [P] int64 type of each; None of one type
    phase: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()


def width_of_node(config: ModelConfig) -> int:
    """Return the width of what the encoder of a model of links gives for a node."""
    return config.out_channels or config.hidden


class Dot(Module):
    """PyG's dot product of both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.product = InnerProductDecoder()

    def forward(self, z: Tensor, pairs: Pairs) -> Tensor:
        """Scores [P] of pairs of rows of z [N, F]."""
        return self.product(z, pairs.nodes, sigmoid=False)

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
        """Return as `Dot` does a row of sources for each node and type of link that there are."""
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
            return self.decoder(z, pairs)
