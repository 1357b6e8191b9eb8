"""Attention-based graph neural network, whose attention has no weights but one (Thekumparampil et al., 2018)."""

from __future__ import annotations

from pydantic import Field
from torch.nn import Module
from torch_geometric.nn import AGNNConv, Linear, Sequential

from gnnbench.config import ModelConfig

bipartite = False  # PyG's conv takes no pairs


class Config(ModelConfig):
    """Which form; `layers` counts the propagation layers."""

    projected: bool = Field(
        False,
        description="DF-GNN's form: a linear layer in every conv, no self-loops and no temperature; otherwise the "
        "authors', with linear layers at both ends",
    )


def linear_ends(config: Config) -> bool:
    """Return whether the model needs linear layers around its convs, which have no weights."""
    return not config.projected


def conv(config: Config, in_channels: int, out_channels: int, last: bool) -> Module:
    """An AGNNConv with a trained temperature, or a linear layer and one without."""
    if not config.projected:
        return AGNNConv(requires_grad=True)
    attention = AGNNConv(requires_grad=False, add_self_loops=False)
    return Sequential("x, adj", [(Linear(in_channels, out_channels), "x -> x"), (attention, "x, adj -> x")])
