"""In inference mode, whose tensors count no edits, every call runs as PyG's, and leaves Graphs to train with."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn.aggr import SoftmaxAggregation
from torch_geometric.utils import sort_edge_index

import gnnbench
from gnnbench.backends import isplib
from tests.patch.test_patch_functions import Pooling
from tests.support import choosing
from tests.support.dropin import BACKEND

NODES, EDGES = 60, 900


@pytest.fixture(autouse=True)
def over_blocks(monkeypatch: pytest.MonkeyPatch, always: None) -> None:
    """And every Graph is worth its blocks."""
    choosing.use_blocks(monkeypatch, 2)


def inputs() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    edge_index = sort_edge_index(torch.randint(NODES, (2, EDGES), generator=generator), sort_by_row=False)
    return {
        "edge_index": edge_index,
        "x": torch.randn(NODES, 8, generator=generator),
        "edge_weight": torch.rand(EDGES, generator=generator),
        "edge_attr": torch.randn(EDGES, 3, generator=generator),
        "ptr": torch.tensor([0, 7, 7, 30, NODES]),
    }


CALLS: dict[str, tuple[str, Callable[[], nn.Module], list[str]]] = {  # what runs, a module, and its arguments
    "softmax over ptr": ("softmax", lambda: SoftmaxAggregation(learn=True), ["x", "ptr"]),
    "attentional": ("softmax", Pooling, ["x", "edge_index"]),
    "softmax in messages": ("GENConv", lambda: pyg.GENConv(8, 8), ["x", "edge_index"]),
    "gcn": ("GCNConv", lambda: pyg.GCNConv(8, 8), ["x", "edge_index", "edge_weight"]),
    "graph": ("GraphConv", lambda: pyg.GraphConv(8, 8, aggr="max"), ["x", "edge_index", "edge_weight"]),
    "edge features": (
        "TransformerConv",
        lambda: pyg.TransformerConv(8, 4, edge_dim=3),
        ["x", "edge_index", "edge_attr"],
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_inference_mode(case: str) -> None:
    name, make, arguments = CALLS[case]
    torch.manual_seed(0)
    module, outside = make(), inputs()

    def run(given: dict[str, Tensor]) -> Tensor:
        return module(**{key: given[key] for key in arguments})

    expected = run(outside)
    grads = torch.autograd.grad(expected.square().sum(), list(module.parameters()))
    with gnnbench.patched(BACKEND):
        with torch.inference_mode():
            inside = inputs()
            for given in (outside, inside, outside, inside):
                torch.testing.assert_close(run(given), expected, rtol=1e-4, atol=1e-5)
            for tensor in ("edge_weight", "x"):
                inside[tensor].mul_(2)
            changed = run(inside)
            with gnnbench.unpatched():
                torch.testing.assert_close(changed, run(inside), rtol=1e-4, atol=1e-5)
        trained = torch.autograd.grad(run(outside).square().sum(), list(module.parameters()))
    torch.testing.assert_close(trained, grads, rtol=1e-3, atol=1e-3)
    ran = gnnbench.patch_status().accelerated
    assert ran[name] >= 5
    assert sum(ran.values()) == 6  # a layer with its softmax, where that is all


@pytest.mark.skipif(bool(isplib.MISSING), reason=isplib.MISSING)
@pytest.mark.parametrize("kind", [pyg.FiLMConv, pyg.GENConv])
def test_messages_are_fused_there_too(kind: type[nn.Module]) -> None:
    conv, given = kind(8, 8), inputs()
    with gnnbench.patched(BACKEND), torch.inference_mode():
        found = conv(given["x"], given["edge_index"])
    assert gnnbench.patch_status().ways == {kind.__name__: "fused"}
    torch.testing.assert_close(found, conv(given["x"], given["edge_index"]), rtol=1e-4, atol=1e-5)


def test_what_a_conv_cached_in_inference_mode() -> None:
    given = inputs()
    plain, conv = pyg.GCNConv(8, 8), pyg.GCNConv(8, 8, cached=True)
    conv.load_state_dict(plain.state_dict())
    expected = plain(given["x"], given["edge_index"])
    with gnnbench.patched(BACKEND), torch.inference_mode():
        for _ in range(2):
            torch.testing.assert_close(conv(given["x"], given["edge_index"]), expected, rtol=1e-4, atol=1e-5)
    assert gnnbench.patch_status().accelerated == {"GCNConv": 2}
