"""Features that are mostly zero, in the drop-in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

import gnnbench
from gnnbench.backends import isplib
from gnnbench.ops import features as ops
from tests.support.dropin import always, untouched

__all__ = ["always", "untouched"]
pytestmark = [pytest.mark.usefixtures("always"), pytest.mark.skipif(bool(isplib.MISSING), reason=isplib.MISSING)]

NODES, WIDTH = 700, 400
CONVS: dict[str, Callable[[], Any]] = {
    "gcn": lambda: pyg.GCNConv(WIDTH, 8),
    "sage": lambda: pyg.SAGEConv(WIDTH, 8),
    "gin": lambda: pyg.GINConv(torch.nn.Sequential(torch.nn.Linear(WIDTH, 8))),
    "gat": lambda: pyg.GATConv(WIDTH, 4, heads=2, residual=True),
    "gatv2": lambda: pyg.GATv2Conv(WIDTH, 4, heads=2),
    "transformer": lambda: pyg.TransformerConv(WIDTH, 4, heads=2, beta=True),
}
GENERATOR = torch.Generator().manual_seed(0)
EDGES = torch.randint(NODES, (2, 6000), generator=GENERATOR)


def features(share: float = 0.05) -> Tensor:
    x = torch.randn(NODES, WIDTH, generator=GENERATOR)
    return x * (torch.rand(NODES, WIDTH, generator=GENERATOR) < share)


def step(conv: Any, x: Tensor) -> list[Tensor]:
    out = conv(x, EDGES)
    return [out, *torch.autograd.grad(out.square().sum(), [*conv.parameters()], allow_unused=True)]


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[ops.Features]:
    """The features that were multiplied without their zeros."""
    seen: list[ops.Features] = []
    multiply = ops.Features.__matmul__

    def recorded(self: ops.Features, weight: Tensor) -> Tensor:
        seen.append(self)
        return multiply(self, weight)

    monkeypatch.setattr(ops.Features, "__matmul__", recorded)
    return seen


@pytest.mark.parametrize("name", CONVS)
def test_convs_compute_the_same_whatever_becomes_of_features(name: str, products: list[ops.Features]) -> None:
    conv, x = CONVS[name](), features()
    edits: list[Callable[[], Any]] = [
        lambda: None,
        lambda: None,
        lambda: x.add_(features()),
        lambda: None,
        lambda: x.data.mul_(2),  # which torch does not count
        lambda: None,
        lambda: x.copy_(features(1.0)),
        lambda: None,
    ]
    met = []
    for edit in edits:
        edit()
        expected = step(conv, x)
        products.clear()
        with gnnbench.patched(strict=True):
            for ours, theirs in zip(step(conv, x), expected, strict=True):
                assert (ours is None) == (theirs is None)
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)
        met.append(bool(products))
    assert met == [False, True, False, True, False, True, False, False]


def test_layers_that_are_watched_get_the_matrix_itself(products: list[ops.Features]) -> None:
    conv, x, seen = pyg.GCNConv(WIDTH, 8), features(), []
    conv.lin.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with gnnbench.patched(strict=True):
        for _ in range(3):
            conv(x, EDGES)
    assert [type(tensor) for tensor in seen] == [Tensor] * 3
    assert not products
