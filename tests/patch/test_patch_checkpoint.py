"""Activation checkpointing runs a forward twice, and both runs are by the same code, ours or PyG's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch_geometric import nn as pyg
from torch_geometric import utils

import gnnbench
from tests.support.dropin import BACKEND

NODES = 1000


class Weights(nn.Linear):
    """Normalises scores of edges; calls the function that it finds in the module."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return utils.softmax(super().forward(x)[edge_index[0]], edge_index[1], num_nodes=NODES)


class Wide(pyg.GeneralConv):
    """A layer that is streamed, of so many channels that it is worth it."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x.repeat(1, 4), edge_index)


CONVS: dict[str, Callable[[], nn.Module]] = {
    "GCNConv": lambda: pyg.GCNConv(32, 32),
    "SAGEConv": lambda: pyg.SAGEConv(32, 32),
    "GINConv": lambda: pyg.GINConv(nn.Linear(32, 32)),
    "GATConv": lambda: pyg.GATConv(32, 4, heads=8),
    "GATv2Conv": lambda: pyg.GATv2Conv(32, 4, heads=8),
    "Wide": lambda: Wide(128, 32, attention=True, heads=8),
    "SGConv": lambda: pyg.SGConv(32, 32),  # a product
    "softmax": lambda: Weights(32, 8),
}
TIMES = {3000: 40, 4000: 20, 20_000: 1}  # that graphs of so many edges come, until they are surely worth sorting


def graph(edges: int) -> Tensor:
    return torch.randint(NODES, (2, edges), generator=torch.Generator().manual_seed(3))


def features() -> Tensor:
    return torch.randn(NODES, 32, generator=torch.Generator().manual_seed(1), requires_grad=True)


def accelerated(name: str) -> int:
    return gnnbench.patch_status().accelerated.get(name, 0)


@pytest.mark.parametrize("edges", TIMES)
@pytest.mark.parametrize("name", CONVS)
def test_both_runs_save_the_same_tensors(name: str, edges: int) -> None:
    torch.manual_seed(0)
    conv, x, edge_index = CONVS[name](), features(), graph(edges)
    expected = torch.autograd.grad(conv(x, edge_index).square().sum(), [x, *conv.parameters()])
    gnnbench.patch_pyg(BACKEND)
    for early_stop in (True, False):
        with set_checkpoint_early_stop(early_stop):
            out = checkpoint(conv, x, edge_index, use_reentrant=False)
        for _ in range(TIMES[edges]):
            conv(x, edge_index)
        found = torch.autograd.grad(out.square().sum(), [x, *conv.parameters()])
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert accelerated(name) > 0 or edges == 3000 or (edges == 4000 and name in ("Wide", "SGConv"))


@pytest.mark.parametrize("name", ["GCNConv", "GATConv", "Wide", "softmax"])
def test_a_backward_outside_of_the_context_runs_what_the_forward_ran(name: str) -> None:
    conv, x, edge_index = CONVS[name](), features(), graph(20_000)
    with gnnbench.patched(BACKEND):
        out = checkpoint(conv, x, edge_index, use_reentrant=False)
    out.sum().backward()
    assert accelerated(name) == 0
    gnnbench.patch_pyg(BACKEND)
    with gnnbench.patched(BACKEND):
        out = checkpoint(conv, x, edge_index, use_reentrant=False)
    out.sum().backward()
    assert accelerated(name) > 0


@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize("edges", TIMES)
@pytest.mark.parametrize("kind", [pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv])
def test_both_runs_drop_the_same_weights(kind: type, edges: int, context: bool) -> None:
    """Nothing compares the runs of a reentrant checkpoint, and our dropout is not PyG's by the same seed."""
    conv, x, edge_index, name = kind(32, 4, heads=8, dropout=0.5), features(), graph(edges), kind.__name__
    if not context:
        gnnbench.patch_pyg(BACKEND)
    for _ in range(2):
        before = accelerated(name)
        with gnnbench.patched(BACKEND) if context else nullcontext():
            out = checkpoint(conv, x, edge_index, use_reentrant=True)
        first, before = accelerated(name) - before, accelerated(name)
        out.sum().backward()
        assert accelerated(name) - before == first
        assert first == (edges > 3000 and not context)
        for _ in range(TIMES[edges]):
            conv(x, edge_index)
