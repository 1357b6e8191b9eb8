"""Models: stacks of untouched PyG convs; one file per conv type with its `Config` and `conv(...)`.

_stack       the one model definition; from the nodes of graphs to the graphs, and to links
_typed       the model of graphs of several types
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import Module

from gnnbench import registry
from gnnbench.config import ModelConfig
from gnnbench.errors import ConfigError
from gnnbench.models._stack import Layer, Links, LinkStack, Pairs, Stack, width_of_node
from gnnbench.models._typed import TypedStack, Types

__all__ = ["Layer", "Links", "Pairs", "Types", "build", "is_bipartite", "width_of_node"]


def is_bipartite(config: ModelConfig) -> bool:
    """Return whether the model takes a list with a `Layer` for each of its convs in place of `adj`."""
    return bool(getattr(registry.find("models", config.name), "bipartite", True))


def build(
    config: ModelConfig,
    in_channels: int,
    out_channels: int,
    encoder: str = "",
    edge_channels: int = 0,
    degrees: Callable[[], Tensor] | None = None,
    links: Links | None = None,
    types: Types | None = None,
    batched: bool = False,
) -> Module:
    """The model that `config` describes, on CPU, initialised from torch's global seed.

    Its forward is `model(x [N, in_channels], adj) -> logits [N, out_channels]`, where `adj` is what the
    backend's `prepare` returned; its convs are `model.convs`, first to last. With a readout it is
    `model(x, adj, segments) -> outputs [B, out_channels]` of graphs. Convs that take features of edges are given
    `edge_attr` [E, edge_channels] of the forward. For links it is `model(x, adj, pairs) -> scores [P]`.

    Args:
        encoder: what embeds categories x [N, in_channels] int64 before the first conv, and those of edges; empty
            for features.
        edge_channels: width of the features of edges, 0 where there are none.
        degrees: count the nodes that have 0, 1, ... in-edges, for convs that are scaled by them; None if unknown.
        links: what is predicted, in place of outputs of nodes.
        types: of nodes and edges, where there are several; then see `TypedStack` for the forward.
        batched: whether every step brings another graph, so that convs may keep nothing of it.

    Raises:
        ConfigError: the convs take features of edges, and there are none; or the model is of one type, and the
            graph of several, or the reverse.
    """
    family = registry.find("models", config.name)
    typed = [name for name in registry.names("models") if hasattr(registry.find("models", name), "typed")]
    if types is None and config.name in typed:
        raise ConfigError(
            f"model {config.name} is of graphs of several types, and this one has one; choose a model such as "
            "gcn, or a dataset such as dblp"
        )
    if types is not None:
        if config.name not in typed:
            raise ConfigError(
                f"model {config.name} is of graphs of one type, and this one has {len(types.nodes)} types of "
                f"nodes; choose {', '.join(typed[:-1])} or {typed[-1]}"
            )
        return TypedStack(config, family, types, out_channels)
    if degrees is not None and hasattr(family, "fit"):
        config = family.fit(config, degrees)
    if links is None:
        model = Stack(config, family, in_channels, out_channels, encoder, edge_channels)
    else:
        model = LinkStack(config, family, in_channels, links)
    for conv in model.convs if batched else ():
        if hasattr(conv, "cached"):
            kept: Any = conv
            kept.cached = False
    return model
