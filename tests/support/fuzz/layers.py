"""Random layers, convs and models of them."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Module, Sequential
from torch_geometric import nn as pyg
from torch_geometric.nn import MessagePassing

WIDTHS = (1, 2, 3, 5, 8, 16, 17, 33)
WRONG = 0.01  # share of layers that are given another width than they are made for


class Doubled(nn.Linear):
    """A user's class, which kernels know nothing of."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class Net(Module):
    """Blocks one after the other: layers take features, convs a graph too."""

    def __init__(self, blocks: list[Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Any, adj: Any, edge_attr: Tensor | None = None) -> Any:
        for block in self.blocks:
            x = called(block, x, adj, edge_attr)
        return x


def called(block: Module, x: Any, adj: Any, edge_attr: Tensor | None) -> Any:
    """The output of one block, which gets what it has parameters for."""
    if not isinstance(block, MessagePassing):
        return block(x)
    takes_edges = isinstance(block, pyg.GINEConv) or getattr(block, "edge_dim", None) is not None
    return block(x, adj, edge_attr) if takes_edges else block(x, adj)


def linear(draw: Random, width: int, out: int) -> Module:
    bias = draw.random() < 0.7
    kind = draw.choices((nn.Linear, pyg.Linear, Doubled), (8, 2, 1))[0]
    return kind(width, out, bias=bias)


def batch_norm(draw: Random, width: int) -> Module:
    return nn.BatchNorm1d(
        width,
        eps=draw.choice((1e-5, 1e-3, 0.5)),
        momentum=draw.choice((0.1, 0.1, 0.1, None, 0.0, 1.0)),
        affine=draw.random() < 0.8,
        track_running_stats=draw.random() < 0.85,
    )


def layer(draw: Random, width: int) -> Module:
    """A layer that keeps the width of its input."""
    kinds: list[Any] = [
        lambda: batch_norm(draw, width),
        lambda: nn.ReLU(inplace=draw.random() < 0.2),
        lambda: nn.Dropout(draw.choice((0.0, 0.3, 0.5, 1.0))),
        lambda: nn.LayerNorm(width, eps=draw.choice((1e-5, 1e-2)), elementwise_affine=draw.random() < 0.8),
        lambda: linear(draw, width, width),
        lambda: draw.choice((nn.Identity, nn.SiLU, nn.Tanh))(),
        lambda: Sequential(*layers(draw, width, width, draw.randint(0, 3))),
    ]
    made: Module = draw.choices(kinds, (5, 3, 2, 1, 2, 1, 1))[0]()
    return made


def layers(draw: Random, width: int, out: int, count: int) -> list[Module]:
    """About `count` layers from one width to another; a ReLU follows most batch norms."""
    made: list[Module] = []
    for _ in range(count):
        if draw.random() < 0.4:
            following = draw.choice(WIDTHS)
            made.append(linear(draw, width if draw.random() > WRONG else width + 1, following))
            width = following
        else:
            made.append(layer(draw, width if draw.random() > WRONG else width + 1))
            if isinstance(made[-1], nn.BatchNorm1d) and draw.random() < 0.7:
                made.append(nn.ReLU(inplace=draw.random() < 0.2))
    if made and draw.random() < 0.1:
        made.append(draw.choice(made))  # a shared one, whose width may be wrong
    return [*made, linear(draw, width, out)] if width != out else made


def conv(draw: Random, width: int, out: int, edge_dim: int) -> list[Module]:
    """One of the nine convs that kernels compute, with random options, and what it takes to change the width."""

    def flag(share: float = 0.5) -> bool:
        return draw.random() < share

    def network() -> Module:
        return Sequential(*layers(draw, width, out, draw.randint(1, 4)), *([nn.Linear(out, out)] * flag()))

    heads = draw.choice((1, 2, 3))
    attends = {"heads": heads, "concat": False, "bias": flag(0.8), "edge_dim": edge_dim if flag(0.3) else None}
    loops = {"add_self_loops": flag(0.7)}
    reduce = draw.choice(("sum", "mean", "max", "min"))
    eps = {"eps": draw.choice((0.0, 0.3, -0.5)), "train_eps": flag()}
    kinds: list[Any] = [
        lambda: pyg.GCNConv(width, out, normalize=flag(0.8), bias=flag(0.8), improved=flag(0.2), cached=flag(0.1)),
        lambda: pyg.SAGEConv(
            width, out, aggr=reduce, project=flag(0.2), root_weight=flag(0.8), normalize=flag(0.2), bias=flag(0.8)
        ),
        lambda: pyg.GINConv(network(), **eps),
        lambda: pyg.GINEConv(
            Sequential(nn.Linear(width, out), *layers(draw, out, out, draw.randint(0, 2))),
            edge_dim=edge_dim,
            **eps,
        ),
        lambda: pyg.GraphConv(width, out, aggr=reduce, bias=flag(0.8)),
        lambda: pyg.GATConv(width, out, residual=flag(0.3), **attends, **loops),
        lambda: pyg.GATv2Conv(width, out, residual=flag(0.3), share_weights=flag(0.3), **attends, **loops),
        lambda: pyg.TransformerConv(width, out, beta=flag(0.3), root_weight=flag(0.8), **attends),
    ]
    if flag(1 / 9):
        return [pyg.AGNNConv(requires_grad=flag(), **loops), linear(draw, width, out)]
    return [draw.choice(kinds)()]


def encoder(draw: Random, width: int) -> Module:
    """Embeddings of categories."""
    from ogb.graphproppred import mol_encoder

    if draw.random() < 0.3:
        return nn.Embedding(7, width, padding_idx=draw.choice((None, 0)))
    made: Module = draw.choice((mol_encoder.AtomEncoder, mol_encoder.BondEncoder))(width)
    return made


def net(draw: Random, width: int, edge_dim: int) -> Net:
    """Blocks of layers, with convs between them in most models."""
    blocks: list[Module] = [encoder(draw, width)] if draw.random() < 0.15 else []
    convs = draw.choice((0, 1, 1, 2))
    for index in range(convs + 1):
        following = draw.choice(WIDTHS)
        if index:
            blocks += conv(draw, width, following, edge_dim)
            width, following = following, draw.choice(WIDTHS)
        blocks.append(Sequential(*layers(draw, width, following, draw.randint(0 if convs else 1, 4))))
        width = following
    return Net(blocks)


def stack(draw: Random, width: int, edge_dim: int) -> Module:
    """A model of the harness."""
    from gnnbench import models, registry

    name = draw.choice(("gcn", "sage", "gin", "gat", "gatv2", "transformer", "agnn"))
    options: dict[str, Any] = {"name": name, "hidden": draw.choice((4, 16, 32)), "layers": draw.randint(1, 3)}
    options |= {"dropout": draw.choice((0.0, 0.5)), "norm": draw.choice(("none", "batch", "batch", "layer"))}
    options |= {"residual": draw.random() < 0.3, "activation": draw.choice(("relu", "relu", "elu"))}
    if name in ("gat", "gatv2", "transformer"):
        options |= {"heads": 2, "edge_features": draw.random() < 0.3}
    config = registry.find("models", name).Config(**options)
    return models.build(config, width, draw.choice(WIDTHS), edge_channels=edge_dim)


def initialised(model: Module) -> Module:
    """The model with parameters that are nowhere zero, as biases and kinks of a ReLU would otherwise be."""
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.normal_()
    return model
