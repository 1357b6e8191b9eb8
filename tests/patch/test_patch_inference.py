"""In inference mode, whose tensors count no edits, every call runs as PyG's, and leaves Graphs to train with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn.aggr import AttentionalAggregation, SoftmaxAggregation
from torch_geometric.utils import sort_edge_index

import gnnbench
from gnnbench.backends import isplib
from gnnbench.backends.isplib import choices
from gnnbench.patch import cost
from gnnbench.patch.status import TALLY

BACKEND = "reference" if isplib.MISSING else "isplib"
NODES, EDGES = 60, 900


@pytest.fixture(autouse=True)
def always_over_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every call is worth its Graph, and every Graph its blocks."""
    monkeypatch.setattr(cost, "FEW", 0)
    monkeypatch.setattr(choices, "L2_BYTES", 1e-9)
    monkeypatch.setattr(choices, "SHIFT", 2)
    monkeypatch.setattr(choices, "EDGES_PER_BLOCK", 0.01)
    TALLY.clear()
    yield
    gnnbench.unpatch_pyg()


def inputs() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    edge_index = sort_edge_index(torch.randint(NODES, (2, EDGES), generator=generator), sort_by_row=False)
    return {
        "edge_index": edge_index,
        "x": torch.randn(NODES, 8, generator=generator),
        "weight": torch.rand(EDGES, generator=generator),
        "attr": torch.randn(EDGES, 3, generator=generator),
        "ptr": torch.tensor([0, 7, 7, 30, NODES]),
    }


CALLS: dict[str, tuple[str, Callable[[], nn.Module], Callable[[Any, dict[str, Tensor]], Tensor]]] = {
    "softmax over ptr": (
        "softmax",
        lambda: SoftmaxAggregation(learn=True),
        lambda module, given: module(given["x"], ptr=given["ptr"]),
    ),
    "attentional": (
        "softmax",
        lambda: AttentionalAggregation(nn.Linear(8, 1)),
        lambda module, given: module(given["x"][given["edge_index"][0]], given["edge_index"][1]),
    ),
    "sorted edges": (
        "softmax",
        lambda: pyg.GENConv(8, 8),
        lambda module, given: module(given["x"], given["edge_index"]),
    ),
    "gcn": (
        "GCNConv",
        lambda: pyg.GCNConv(8, 8),
        lambda module, given: module(given["x"], given["edge_index"], given["weight"]),
    ),
    "graph": (
        "GraphConv",
        lambda: pyg.GraphConv(8, 8, aggr="max"),
        lambda module, given: module(given["x"], given["edge_index"], given["weight"]),
    ),
    "edge features": (
        "TransformerConv",
        lambda: pyg.TransformerConv(8, 4, edge_dim=3),
        lambda module, given: module(given["x"], given["edge_index"], given["attr"]),
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_inference_mode(case: str) -> None:
    name, make, run = CALLS[case]
    torch.manual_seed(0)
    module, outside = make(), inputs()
    expected = run(module, outside)
    grads = torch.autograd.grad(expected.square().sum(), list(module.parameters()))
    with gnnbench.patched(BACKEND):
        with torch.inference_mode():
            inside = inputs()
            for given in (outside, inside, outside, inside):
                torch.testing.assert_close(run(module, given), expected, rtol=1e-4, atol=1e-5)
            for tensor in ("weight", "x"):
                inside[tensor].mul_(2)
            changed = run(module, inside)
            with gnnbench.unpatched():
                torch.testing.assert_close(changed, run(module, inside), rtol=1e-4, atol=1e-5)
        trained = torch.autograd.grad(run(module, outside).square().sum(), list(module.parameters()))
    torch.testing.assert_close(trained, grads, rtol=1e-3, atol=1e-3)
    assert gnnbench.patch_status().accelerated[name] == 6


def test_what_a_conv_cached_in_inference_mode() -> None:
    given = inputs()
    plain, conv = pyg.GCNConv(8, 8), pyg.GCNConv(8, 8, cached=True)
    conv.load_state_dict(plain.state_dict())
    expected = plain(given["x"], given["edge_index"])
    with gnnbench.patched(BACKEND), torch.inference_mode():
        for _ in range(2):
            torch.testing.assert_close(conv(given["x"], given["edge_index"]), expected, rtol=1e-4, atol=1e-5)
    assert gnnbench.patch_status().accelerated == {"GCNConv": 2}
