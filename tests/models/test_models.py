"""Models are stacks of untouched PyG convs of the configured shape."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch_geometric import nn as pyg

from gnnbench import models, registry
from gnnbench.config import AttentionConfig, ModelConfig
from gnnbench.errors import ConfigError

EDGES = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])
CLASSES = {
    "gcn": pyg.GCNConv,
    "sage": pyg.SAGEConv,
    "gin": pyg.GINConv,
    "gine": pyg.GINEConv,
    "gat": pyg.GATConv,
    "gatv2": pyg.GATv2Conv,
    "transformer": pyg.TransformerConv,
    "agnn": pyg.AGNNConv,
    "conv": pyg.EdgeConv,
}
ATTENTION = ("gat", "gatv2", "transformer")


def configured(name: str, **keys: Any) -> ModelConfig:
    keys = {"conv": "EdgeConv", **keys} if name == "conv" else keys
    config: ModelConfig = registry.find("models", name).Config(name=name, **keys)
    return config


def built(name: str, **keys: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    return models.build(configured(name, **keys), in_channels=6, out_channels=3, edge_channels=2)


def test_every_model_is_covered_here() -> None:
    typed = {name for name in registry.names("models") if hasattr(registry.find("models", name), "typed")}
    assert {*CLASSES, *typed} == {*registry.names("models")}


@pytest.mark.parametrize("layers", [1, 2, 5])
@pytest.mark.parametrize("name", CLASSES)
def test_the_stack_has_the_configured_convs_and_gives_logits(name: str, layers: int) -> None:
    model = built(name, layers=layers, hidden=8)
    convs = list(model.get_submodule("convs").children())
    assert [type(conv) for conv in convs] == [CLASSES[name]] * layers
    assert all("forward" not in vars(conv) for conv in convs)
    edge_attr = {"edge_attr": torch.randn(EDGES.size(1), 2)} if name == "gine" else {}
    assert model(torch.randn(5, 6), EDGES, **edge_attr).shape == (5, 3)


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("activation", ["relu", "elu", "gelu", "silu", "leaky_relu", "tanh"])
def test_every_option_trains_every_parameter(norm: str, residual: bool, activation: str) -> None:
    model = built("sage", layers=3, hidden=8, norm=norm, residual=residual, activation=activation)
    model(torch.randn(5, 6), EDGES).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", CLASSES)
def test_the_last_layer_is_plain(name: str) -> None:
    """No activation, so logits below zero occur; no norm, so they are the last module's own output."""
    model = built(name, layers=2, hidden=8, norm="batch", activation="relu").eval()
    last = model.get_submodule("decode" if name in ("agnn", "gine") else "convs.1")
    outputs = []
    last.register_forward_hook(lambda module, inputs, out: outputs.append(out))
    logits = model(torch.randn(5, 6), EDGES, edge_attr=torch.randn(EDGES.size(1), 2))
    assert logits is outputs[0]


@pytest.mark.parametrize("name", ATTENTION)
def test_hidden_is_the_width_of_all_heads(name: str) -> None:
    model = built(name, layers=3, hidden=12, heads=4, output_heads=2)
    first, middle, last = model.get_submodule("convs").children()
    assert (first.heads, first.out_channels, first.concat) == (4, 3, True)
    assert (middle.in_channels, middle.heads) == (12, 4)
    assert (last.heads, last.out_channels, last.concat) == (2, 3, False)


@pytest.mark.parametrize("name", ATTENTION)
def test_heads_must_divide_hidden(name: str) -> None:
    with pytest.raises(ValidationError, match="hidden 64 is not divisible by heads 7"):
        configured(name, heads=7)


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_dropout_reaches_the_convs(name: str) -> None:
    model = built(name, attention_dropout=0.25)
    assert issubclass(type(configured(name)), AttentionConfig)
    assert {conv.dropout for conv in model.get_submodule("convs").children()} == {0.25}


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_sage_aggregates_as_asked(aggr: str) -> None:
    assert {conv.aggr for conv in built("sage", aggr=aggr).get_submodule("convs").children()} == {aggr}


def test_gin_has_the_asked_networks() -> None:
    model = built("gin", hidden=8, mlp_layers=3, mlp_norm=False, train_eps=True)
    first = model.get_submodule("convs.0")
    kinds = [type(layer).__name__ for layer in first.nn]
    assert kinds == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert isinstance(first.eps, torch.nn.Parameter)
    plain = built("gin", hidden=8).get_submodule("convs.0")
    assert "BatchNorm1d" in [type(layer).__name__ for layer in plain.nn]
    assert not isinstance(plain.eps, torch.nn.Parameter)


def test_a_residual_adds_the_input_of_a_hidden_layer() -> None:
    """With convs that give zero, only the residual path is left."""
    model = built("gcn", layers=3, hidden=6, dropout=0.0, residual=True)
    for parameter in model.get_submodule("convs").parameters():
        torch.nn.init.zeros_(parameter)
    seen = []
    model.get_submodule("convs.2").register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    x = torch.randn(5, 6)
    model(x, EDGES)
    torch.testing.assert_close(seen[0], x)


@pytest.mark.parametrize("jk", ["none", "cat", "max"])
@pytest.mark.parametrize(("name", "model"), [("gcn", pyg.GCN), ("sage", pyg.GraphSAGE), ("gat", pyg.GAT)])
def test_weights_are_those_of_pygs_own_models(name: str, model: Any, jk: str) -> None:
    heads = {"output_heads": 8} if name == "gat" else {}
    ours = built(name, layers=3, hidden=8, jk=jk, **heads).eval()
    own = {"heads": 8} if name == "gat" else {}
    theirs = model(6, 8, 3, 3, jk=None if jk == "none" else jk, **own)
    weights = {key.replace("decode.", "lin."): tensor for key, tensor in ours.state_dict().items()}
    theirs.load_state_dict(weights)
    x = torch.randn(5, 6)
    torch.testing.assert_close(ours(x, EDGES), theirs.eval()(x, EDGES))


def test_jumping_knowledge_is_of_the_rows_of_the_last_of_several_layers() -> None:
    model = built("sage", layers=2, hidden=8, jk="cat").eval()
    layers = [models.Layer(EDGES[:, EDGES[1] < rows], rows) for rows in (5, 2)]
    x = torch.randn(5, 6)
    torch.testing.assert_close(model(x, layers), model(x, EDGES)[:2])


def test_dropout_falls_on_every_layers_input_in_training_only() -> None:
    model = built("gcn", layers=3, hidden=64, dropout=0.5, activation="tanh")
    shares = []
    for conv in model.get_submodule("convs").children():
        conv.register_forward_pre_hook(lambda _, inputs: shares.append((inputs[0] == 0).float().mean()))
    x = torch.ones(5, 6)
    model.train()(x, EDGES)
    assert all(0.2 < share < 0.8 for share in shares)
    shares.clear()
    model.eval()(x, EDGES)
    assert all(share == 0 for share in shares)


@pytest.mark.parametrize("name", CLASSES)
def test_one_seed_gives_one_model(name: str) -> None:
    first, second = built(name).state_dict(), built(name).state_dict()
    assert list(first) == list(second)
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize(
    ("conv", "options"),
    [
        ("APPNP", {}),
        ("CGConv", {}),
        ("ChebConv", {"K": 2}),
        ("GINConv", {}),
        ("SuperGATConv", {"heads": 2, "concat": False}),
        ("PNAConv", {"deg": [0, 4, 1]}),
    ],
)
def test_any_conv_of_pyg_makes_a_stack(conv: str, options: dict[str, Any]) -> None:
    model = built("conv", conv=conv, options=options, hidden=8)
    assert {type(layer).__name__ for layer in model.get_submodule("convs").children()} == {conv}
    assert model(torch.randn(5, 6), EDGES).shape == (5, 3)


def test_degrees_of_the_graph_reach_convs_that_are_scaled_by_them() -> None:
    histogram = torch.tensor([1, 3, 4])
    config = configured("conv", conv="PNAConv")
    model = models.build(config, 6, 3, degrees=lambda: histogram)
    by_hand = pyg.PNAConv(6, 3, ["mean"], ["identity"], deg=histogram).aggr_module
    assert model.get_submodule("convs.0").aggr_module.avg_deg_lin == by_hand.avg_deg_lin


@pytest.mark.parametrize(
    ("conv", "options", "sentence"),
    [
        ("PNACon", {}, "model.conv: unknown layer 'PNACon'; did you mean 'PNAConv'?"),
        ("EdgeConv", {"aggregate": "sum"}, "model.options: EdgeConv takes no 'aggregate'; did you mean 'aggr'?"),
        ("ChebConv", {"depth": 2}, "ChebConv takes no 'depth'; allowed: K, aggr, "),
        ("PNAConv", {}, "model.options: PNAConv needs deg"),
        ("EGConv", {}, "model.options: EGConv cannot be built: ValueError: 'out_channels' (got 3)"),
        ("FAConv", {}, "model.conv: FAConv is called with x_0 too, which a stack does not have"),
        ("NNConv", {}, "model.conv: NNConv cannot be called with x and edge_index alone: "),
        ("MixHopConv", {}, "MixHopConv gives 192 channels where the stack needs 64; set other model.options"),
    ],
)
def test_a_conv_that_fits_no_stack_is_refused_in_a_sentence(
    conv: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as error:
        built("conv", conv=conv, options=options)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
