"""Linear layers of edges are computed over nodes, and give PyG's outputs and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradgradcheck
from torch_geometric import nn as pyg

import gnnbench
from gnnbench import messages
from tests.messages.test_messages import everything, short  # noqa: F401
from tests.support import graphs, layers
from tests.support.dropin import BACKEND, always, unfused, untouched  # noqa: F401

pytestmark = pytest.mark.usefixtures("always", "short", "unfused")
F = layers.F


class Own(pyg.MessagePassing):
    """A layer of a user, whose message is `compute`."""

    def __init__(self, compute: Any) -> None:
        super().__init__(aggr="mean")
        self.compute = compute
        self.one, self.two = nn.Linear(F, 4), nn.Linear(2 * F, 4, bias=False)
        self.three = nn.Linear(2 * F + 2, 4)

    def forward(self, x: Tensor, edge_index: Tensor, attr: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, attr=attr)

    def message(self, x_i: Tensor, x_j: Tensor, attr: Tensor) -> Tensor:
        return self.compute(self, x_i, x_j, attr)


def in_place(own: Own, x_i: Tensor, x_j: Tensor, attr: Tensor) -> Tensor:
    both = x_j + x_i
    both += 1
    return own.one(both).relu() + own.one(x_j)


def cat(*tensors: Tensor) -> Tensor:
    return torch.cat(tensors, dim=-1)


MESSAGES: dict[str, tuple[Any, int | None]] = {
    "side by side": (lambda own, i, j, e: own.two(cat(i, j)).relu(), 1),
    "a layer twice": (lambda own, i, j, e: own.one(i).relu() * (own.one(j) + own.one(j + i)), 3),
    "a difference beside an end": (lambda own, i, j, e: own.two(cat(i, j - i)).tanh(), 1),
    "a difference alone": (lambda own, i, j, e: own.one(j - i).tanh() * own.one(j + j), 1),
    "beside features of edges": (lambda own, i, j, e: own.three(cat(i, e, j)).relu(), 1),
    "a layer of a layer": (lambda own, i, j, e: nn.functional.linear(own.one(j), own.one.weight[:, :4]), 1),
    "in place": (in_place, 1),
    "nothing linear": (lambda own, i, j, e: (i * j).relu() + cat(j, j)[:, :F], None),
    "no layer of its own": (lambda own, i, j, e: nn.functional.linear(i, own.one.weight * 2).relu(), 0),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_linear_layer_of_a_user(name: str) -> None:
    compute, expected = MESSAGES[name]
    lifted = compared(lambda: Own(compute), lambda own, g: own(g.x, g.edge_index, g.attr), "power law")
    assert (lifted if lifted is None else len(lifted)) == expected


@pytest.mark.parametrize("make", [lambda: layers.pna(towers=2), lambda: pyg.CGConv(F)], ids=["PNAConv", "CGConv"])
def test_a_layer_of_pyg(make: Any) -> None:
    assert len(compared(make, lambda conv, g: conv(g.x, g.edge_index), "power law")) == 2


def test_as_many_nodes_as_edges_pay_nothing() -> None:
    assert not compared(lambda: pyg.CGConv(F), lambda conv, g: conv(g.x, g.edge_index[:, :100]), "power law")


def compared(make: Any, call: Any, graph: str) -> Any:
    """The linear layers that were computed over nodes, where outputs and gradients are PyG's."""
    made: list[nn.Module] = []

    def kept() -> nn.Module:
        made.append(make())
        return made[-1]

    edge_index, nodes, _ = graphs.zoo()[graph]
    g = layers.given(edge_index, nodes)
    expected = everything(kept, call, g)
    with gnnbench.patched(BACKEND):
        found = everything(kept, call, g)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)
    assert gnnbench.patch_status().ways == {type(made[-1]).__name__: "streamed"}, gnnbench.patch_status()
    ((_, rehearsal),) = messages._known[made[-1]]
    return rehearsal.lifted


def test_second_derivatives() -> None:
    edge_index, nodes, _ = graphs.SMALL["knot"]
    g = layers.given(edge_index, nodes)
    own = Own(lambda own, i, j, e: own.two(cat(i, j - i)).tanh()).double()

    with gnnbench.patched(BACKEND):
        assert gradgradcheck(lambda x, _: own(x, g.edge_index, g.attr), (g.x, own.two.weight))
