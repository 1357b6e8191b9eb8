"""Layers that change between calls, and between a forward and its backward."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

import gnnbench
from gnnbench.ops import stream
from gnnbench.ops.kernels import Kernels
from tests.support import graphs, layers
from tests.support.dropin import BACKEND, always, unfused, untouched  # noqa: F401


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few edges, so that small graphs have many."""
    monkeypatch.setattr(stream, "LEAST", 1)
    monkeypatch.setattr(Kernels, "chunk_bytes", 4096)


class Own(pyg.MessagePassing):
    """A layer whose message is `compute`, of itself and of what PyG gives it."""

    def __init__(self, compute: Any) -> None:
        super().__init__()
        self.compute = compute
        self.lin = nn.Linear(layers.F, 4)
        self.act: Any = None
        self.left: Any = None
        self.log: list[str] = []

    def forward(self, x: Tensor, edge_index: Tensor, attr: Any = None) -> Tensor:
        return self.propagate(edge_index, x=x, attr=attr)

    def message(self, x_j: Tensor, attr: Any) -> Tensor:
        out: Tensor = self.compute(self, x_j, attr)
        return out


def in_place(own: Own, x_j: Tensor, attr: Any) -> Tensor:
    return own.lin(x_j) * attr.mul_(2)


@pytest.mark.usefixtures("always", "short", "unfused")
def test_a_message_that_writes_to_what_it_is_given_is_left_to_pyg() -> None:
    g = layers.given(graphs.zoo()["power law"][0], 60)
    own, found, expected = Own(in_place).double(), torch.ones(1).double(), torch.ones(1).double()
    with gnnbench.patched(BACKEND):
        out = own(g.x, g.edge_index, found)
    torch.testing.assert_close(out, own(g.x, g.edge_index, expected))
    assert float(found) == float(expected) == 2.0
    assert [why for _, why in gnnbench.patch_status().declined] == ["its message writes to what it is given"]


class Option(pyg.MessagePassing):
    """Layers whose messages are `x_j` for some of their options and arguments."""

    twice_each = False

    def forward(self, x: Tensor, edge_index: Tensor, more: bool = False) -> Tensor:
        return self.propagate(edge_index, x=x, more=more)

    def message(self, x_j: Tensor, more: bool = False) -> Tensor:
        return x_j * 2 if more or self.twice_each or not self.training else x_j


class Given(Option):
    """Without a look at the layer."""

    def message(self, x_j: Tensor, *, more: bool = False) -> Tensor:
        return x_j * 2 if more else x_j


@pytest.mark.usefixtures("always", "short", "unfused")
def test_messages_are_not_recognised_by_options_that_change() -> None:
    g = layers.given(graphs.zoo()["power law"][0], 60)
    with gnnbench.patched(BACKEND):
        for own in (Option(), Given()):
            once = own(g.x, g.edge_index)
            torch.testing.assert_close(own(g.x, g.edge_index, True), 2 * once)
        own = Option()
        own.twice_each = True
        torch.testing.assert_close(own(g.x, g.edge_index), 2 * once)
        torch.testing.assert_close(Option().eval()(g.x, g.edge_index), 2 * once)
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'more'"):
            own.propagate(g.edge_index, x=g.x)


def centred(x: Tensor) -> Tensor:
    return x - x.mean(0)


def acts(own: Own, x_j: Tensor, attr: Any) -> Tensor:
    out: Tensor = own.act(own.lin(x_j)) * (1 if own.training else 3)
    return out


@pytest.mark.usefixtures("always", "short", "unfused")
def test_a_layer_that_changes_is_rehearsed_again_and_not_kept() -> None:
    g = layers.given(graphs.zoo()["power law"][0], 60)
    own = Own(acts).double()
    with gnnbench.patched(BACKEND):
        own.act = torch.tanh
        own(g.x, g.edge_index)
        own.act = centred
        out = own(g.x, g.edge_index)
        own.act = torch.tanh
        own(g.x, g.edge_index)
    own.act = centred
    torch.testing.assert_close(out, own(g.x, g.edge_index))
    assert gnnbench.patch_status().accelerated == {"Own": 2}
    kept = weakref.ref(own)
    del own, out
    gc.collect()
    assert kept() is None


@pytest.mark.usefixtures("always", "short", "unfused")
def test_a_backward_finds_the_layer_as_its_forward_did() -> None:
    """Mode, options, modules and parameters may change between the two, as `functional_call` does."""
    g = layers.given(graphs.zoo()["power law"][0], 60)
    torch.manual_seed(0)
    own = Own(acts).double()
    others = {name: (2 * value.detach()).requires_grad_() for name, value in own.named_parameters()}

    def run() -> tuple[Tensor, ...]:
        own.train().act, lin = torch.tanh, own.lin
        first = own(g.x, g.edge_index)
        second = torch.func.functional_call(own, others, (g.x, g.edge_index))
        own.eval().act, own.lin = centred, nn.Linear(layers.F, 4).double()
        changed = own.lin
        wanted = [g.x, lin.weight, others["lin.weight"]]
        grads = torch.autograd.grad(first.square().sum() + second.square().sum(), wanted)
        assert own.lin is changed
        assert not own.training
        own.lin = lin
        return grads

    expected = run()
    with gnnbench.patched(BACKEND):
        found = run()
    torch.testing.assert_close(found, expected)
    assert gnnbench.patch_status().accelerated == {"Own": 2}


def leaves(own: Own, x_j: Tensor, attr: Any) -> Tensor:
    own.left = own.lin(x_j).detach()
    if own.log:
        raise ValueError("a message of a user")
    return own.lin(x_j)


@pytest.mark.usefixtures("always", "short", "unfused")
def test_an_exception_in_a_backward_leaves_the_layer_as_it_was() -> None:
    g = layers.given(graphs.zoo()["power law"][0], 60)
    own = Own(leaves).double()
    with gnnbench.patched(BACKEND):
        out = own(g.x, g.edge_index)
        left = own.left
        own.log.append("raise")
        with pytest.raises(ValueError, match="a message of a user"):
            out.sum().backward()
    assert own.left is left


def squashes(own: Own, x_j: Tensor, attr: Any) -> Tensor:
    return own.lin(x_j).tanh() * attr


@pytest.mark.usefixtures("always", "short", "unfused")
def test_second_derivatives_of_operands_that_are_computed_from_each_other() -> None:
    g = layers.given(graphs.zoo()["power law"][0], 60)
    torch.manual_seed(0)
    own = Own(squashes).double()

    def run() -> list[Tensor]:
        wanted = [g.x, *own.lin.parameters()]
        attr = own.lin(g.x).mean(0)
        first = torch.autograd.grad(own(g.x, g.edge_index, attr).square().sum(), wanted, create_graph=True)
        second = torch.autograd.grad(sum(each.sin().sum() for each in first), wanted)
        return [*first, *second]

    expected = run()
    with gnnbench.patched(BACKEND):
        found = run()
    torch.testing.assert_close(found, expected)
    assert gnnbench.patch_status().accelerated == {"Own": 1}
