"""Any message-passing layer of PyG by the name of its class, such as PNAConv, in a stack of its own."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from pydantic import Field, JsonValue
from torch import Tensor
from torch.nn import Linear, Module, ReLU, Sequential
from torch_geometric import nn

from gnnbench.config import ModelConfig
from gnnbench.errors import ConfigError, did_you_mean

bipartite = False  # most take no pairs of sources and destinations
RELATIONS = 4
EDGE_CHANNELS = 3  # of the features of edges, where a constructor asks for their width
OF_BASE = ("aggr", "aggr_kwargs", "flow", "node_dim")  # which layers hand to MessagePassing
# Arguments that constructors ask for, by their names, and that options may replace.
DEFAULTS: dict[str, Any] = {
    "K": 3,
    "alpha": 0.1,
    "num_layers": 2,
    "aggregators": ["mean", "min", "max", "std"],
    "scalers": ["identity", "amplification", "attenuation"],
    "filter_size": 3,
    "num_relations": RELATIONS,
    "num_node_types": 2,
    "num_edge_types": 2,
    "edge_type_emb_dim": 4,
    "edge_attr_emb_dim": 4,
    "edge_dim": EDGE_CHANNELS,
    "dim": EDGE_CHANNELS,
    "kernel_size": 3,
    "hidden_channels": 16,
    "first_aggr": True,
    "space_dimensions": 3,
    "propagate_dimensions": 16,
    "k": 8,
    "metadata": (["node"], [("node", f"to_{relation}", "node") for relation in range(RELATIONS)]),
}


class Config(ModelConfig):
    """A class and its options."""

    conv: str = Field(description="a layer of torch_geometric.nn that passes messages, such as PNAConv")
    options: dict[str, JsonValue] = Field({}, description="arguments of its constructor beside widths, such as K")


def fit(config: Config, degrees: Callable[[], Tensor]) -> Config:
    """Add how many nodes have 0, 1, ... in-edges, where the constructor asks for that."""
    if "deg" not in _parameters(kind_of(config.conv)):
        return config
    return config.model_copy(update={"options": {"deg": degrees(), **config.options}})


def linear_ends(config: Config) -> bool:
    """Return whether the layer has one width, or none that it could change."""
    parameters = _parameters(kind_of(config.conv))
    return "nn" not in parameters and not {"in_channels", "out_channels"} <= parameters.keys()


def conv(config: Config, in_channels: int, out_channels: int, last: bool) -> Module:
    """A layer that was tried on a few nodes.

    Raises:
        ConfigError: as `layer`; or it cannot be called with x and edge_index, or gives something else than x.
    """
    made = layer(config.conv, in_channels, out_channels, config.options)
    x, edge_index = torch.zeros(3, in_channels), torch.tensor([[2, 0, 1], [0, 1, 2]])
    if x.is_meta:
        return made
    name = f"model.conv: {config.conv}"
    called = inspect.signature(kind_of(config.conv).forward).parameters.items()
    asks = [key for key, each in called if each.default is each.empty and key not in ("self", "x", "edge_index")]
    if asks and asks != ["hyperedge_index"]:
        raise ConfigError(f"{name} is called with {' and '.join(asks)} too, which a stack does not have")
    try:
        with torch.no_grad():
            out = copy.deepcopy(made).eval()(x, edge_index)
    except Exception as error:  # whatever a layer does that has to have more
        raise ConfigError(f"{name} cannot be called with x and edge_index alone: {_said(error)}") from None
    if not isinstance(out, Tensor):
        raise ConfigError(f"{name} returns a {type(out).__name__}, and a layer of a stack one tensor")
    if out.shape != (3, out_channels):
        raise ConfigError(
            f"{name} gives {out.size(-1)} channels where the stack needs {out_channels}; set other model.options"
        )
    return made


def layer(name: str, in_channels: int, out_channels: int, options: dict[str, Any]) -> Module:
    """A layer of a class, with `DEFAULTS` and small networks for what its constructor asks for beside `options`.

    Raises:
        ConfigError: an unknown class or option, a missing argument, or values that its constructor refuses.
    """
    kind = kind_of(name)
    parameters = _parameters(kind)
    widths = {"in_channels": in_channels, "out_channels": out_channels, "channels": in_channels}
    allowed = [key for key in parameters if key not in widths]
    if any(each.kind is each.VAR_KEYWORD for each in inspect.signature(kind.__init__).parameters.values()):
        allowed += [key for key in OF_BASE if key not in allowed]
    if problems := [
        f"model.options: {name} takes no {key!r}{did_you_mean(key, allowed)}"
        for key in options
        if key not in allowed
    ]:
        raise ConfigError(*problems)
    needed = [key for key, each in parameters.items() if each.default is each.empty]
    given: dict[str, Any] = {key: value for key, value in widths.items() if key in parameters}
    given |= {key: DEFAULTS[key] for key in needed if key in DEFAULTS}
    given |= {key: _network(*ends) for key, ends in _networks(name, in_channels, out_channels).items()}
    given |= options
    if missing := [key for key in needed if key not in given]:
        raise ConfigError(f"model.options: {name} needs {' and '.join(missing)}")
    if "deg" in given:
        given["deg"] = torch.as_tensor(given["deg"])
    try:
        made: Module = kind(**given)
    except Exception as error:  # as constructors check their arguments, in whatever way
        raise ConfigError(f"model.options: {name} cannot be built: {_said(error)}") from None
    return made


def kind_of(name: str) -> Any:
    """The class of a name.

    Raises:
        ConfigError: there is no such layer.
    """
    known = kinds()
    if name not in known:
        raise ConfigError(f"model.conv: unknown layer {name!r}{did_you_mean(name, known)}")
    return known[name]


def kinds() -> dict[str, Any]:
    """All message-passing layers of PyG by the names of their classes."""
    return {
        name: kind
        for name, kind in sorted(vars(nn).items())
        if isinstance(kind, type) and issubclass(kind, nn.MessagePassing) and kind is not nn.MessagePassing
    }


def _parameters(kind: Any) -> dict[str, inspect.Parameter]:
    """The named parameters of a constructor, or of the one that it hands all of its own to."""
    for base in kind.__mro__:
        if "__init__" in vars(base):
            parameters = list(inspect.signature(base.__init__).parameters.values())[1:]
            if named := {each.name: each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD}:
                return named
    return {}


def _networks(name: str, in_channels: int, out_channels: int) -> dict[str, tuple[int, int]]:
    """The networks that a class is built around, with the widths that they connect."""
    return {
        "EdgeConv": {"nn": (2 * in_channels, out_channels)},
        "DynamicEdgeConv": {"nn": (2 * in_channels, out_channels)},
        "GINConv": {"nn": (in_channels, out_channels)},
        "GINEConv": {"nn": (in_channels, out_channels)},
        "NNConv": {"nn": (EDGE_CHANNELS, in_channels * out_channels)},
        "PointNetConv": {"local_nn": (in_channels + 3, out_channels)},
        "PPFConv": {"local_nn": (in_channels + 4, out_channels)},
        "PointGNNConv": {
            "mlp_h": (in_channels, 3),
            "mlp_f": (in_channels + 3, out_channels),
            "mlp_g": (out_channels, in_channels),
        },
    }.get(name, {})


def _network(in_channels: int, out_channels: int) -> Module:
    width = min(out_channels, 64)
    return Sequential(Linear(in_channels, width), ReLU(), Linear(width, out_channels))


def _said(error: Exception) -> str:
    """An error in one line."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
