"""Kept aggregation: exact, computed once, never stale, and declined with a reason where it cannot be."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from gnnbench import convs, models, registry
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels
from tests.convs.test_convs import CONVS, built, outcome
from tests.support import graphs

KEEPING = [name for name in CONVS if name.startswith(("gcn", "sage", "gin")) and name != "sage project"]
EDGES, NODES, _ = graphs.zoo()["hub"]


class Counting(Kernels):
    """Counts the aggregations."""

    calls = 0

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        self.calls += 1
        return super().spmm(graph, x, value, reduce)

    def spmm_max(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> tuple[Tensor, Tensor]:
        self.calls += 1
        return super().spmm_max(graph, x, value, reduce)


def keeping(conv: nn.Module, *, fold_norm: bool = True) -> Counting:
    kernels = Counting()
    (binding,) = convs.bind(conv, kernels, transform_first=True, fold_norm=fold_norm, keep_aggregation=True)
    assert binding.rewrites[-1] == "keep_aggregation"
    assert not {"transform_first", "aggregate_first"} & {*binding.rewrites}
    return kernels


def features(conv: nn.Module) -> Tensor:
    width = next(parameter.size(1) for parameter in conv.parameters() if parameter.dim() == 2)
    return torch.randn(NODES, width, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def graph() -> Graph:
    return Graph.from_edge_index(EDGES, NODES)


def weights(conv: nn.Module, x: Tensor, adjacency: object) -> list[Tensor]:
    """The output and the gradients of all parameters; x is a constant."""
    out = conv(x, adjacency)
    wanted = [parameter for parameter in conv.parameters() if parameter.requires_grad]
    return [out.detach(), *torch.autograd.grad((out * torch.arange(out.numel()).view_as(out)).sum(), wanted)]


@pytest.mark.parametrize("fold_norm", [False, True])
@pytest.mark.parametrize("case", KEEPING)
def test_it_is_exact_and_computed_once(case: str, fold_norm: bool) -> None:
    conv = built(case)
    x, adjacency = features(conv), graph()
    expected = weights(conv, x, EDGES)
    kernels = keeping(conv, fold_norm=fold_norm)
    convs.warm(conv, adjacency, x)
    assert kernels.calls == 1
    for _ in range(2):
        torch.testing.assert_close(weights(conv, x, adjacency), expected, rtol=1e-9, atol=1e-11)
    with torch.inference_mode():
        torch.testing.assert_close(conv(x, adjacency), expected[0], rtol=1e-9, atol=1e-11)
    assert kernels.calls == 1


@pytest.mark.parametrize("case", KEEPING)
def test_inputs_that_need_gradients_get_them(case: str) -> None:
    conv = built(case)
    x = features(conv).requires_grad_()
    expected = outcome(conv, x, EDGES)
    keeping(conv)
    for _ in range(2):
        torch.testing.assert_close(outcome(conv, x, graph()), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("case", ["gcn", "sage max", "gin eps"])
def test_it_is_never_stale(case: str) -> None:
    conv, plain = built(case), built(case)
    keeping(conv)
    x, adjacency = features(conv), graph()
    torch.testing.assert_close(conv(x, adjacency), plain(x, EDGES))
    x.mul_(2)[3] = 1
    torch.testing.assert_close(conv(x, adjacency), plain(x, EDGES))
    other = x.clone().neg_()
    torch.testing.assert_close(conv(other, adjacency), plain(other, EDGES))
    fewer = EDGES[:, ::2]
    torch.testing.assert_close(conv(other, Graph.from_edge_index(fewer, NODES)), plain(other, fewer))
    with torch.inference_mode():
        unversioned = x.clone()
        for _ in range(2):
            unversioned.add_(1)
            torch.testing.assert_close(conv(unversioned, adjacency), plain(unversioned, EDGES))


def test_it_lives_no_longer_than_the_features() -> None:
    conv = built("gcn")
    keeping(conv)
    x = features(conv)
    conv(x, graph())
    ((_, aggregated),) = conv.forward.kept.values()
    found = weakref.ref(aggregated)
    del x, aggregated
    gc.collect()
    assert found() is None


def test_a_copy_keeps_nothing_of_the_original() -> None:
    conv = built("gcn")
    keeping(conv)
    x, adjacency = features(conv), graph()
    expected = conv(x, adjacency)
    for twin in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv.forward))):
        kept = twin.forward.kept if isinstance(twin, nn.Module) else twin.kept
        assert len(kept) == 0
        assert torch.equal(twin(x, adjacency), expected)


@pytest.mark.parametrize(
    ("name", "keys", "reason"),
    [
        ("gcn", {"dropout": 0.5}, "model.dropout=0.5 changes the features in every epoch"),
        ("gat", {"dropout": 0.0, "heads": 1}, "how GATConv aggregates depends on its weights"),
        ("sage", {"dropout": 0.0}, ""),
    ],
)
def test_a_model_says_why_it_keeps_nothing(name: str, keys: dict[str, float], reason: str) -> None:
    model = models.build(registry.find("models", name).Config(name=name, hidden=8, **keys), 5, 3)
    first, second = convs.bind(model, Kernels(), transform_first=True, fold_norm=True, keep_aggregation=True)
    assert first.declined == ({"keep_aggregation": reason} if reason else {})
    assert ("keep_aggregation" in first.rewrites) == (not reason)
    assert "keep_aggregation" not in second.rewrites
    assert second.declined == {}


def test_convs_say_why_they_keep_nothing() -> None:
    hooked = pyg.GCNConv(5, 3)
    hooked.lin.register_forward_hook(lambda module, inputs, out: 2 * out)
    for conv, reason in ((hooked, "is hooked"), (pyg.SAGEConv(5, 3, project=True), "project=True")):
        (binding,) = convs.bind(conv, Kernels(), transform_first=True, fold_norm=True, keep_aggregation=True)
        assert reason in binding.declined["keep_aggregation"]


def test_the_whole_model_trains_as_without() -> None:
    x = torch.randn(NODES, 5, generator=torch.Generator().manual_seed(0))
    losses = {}
    for keep in (False, True):
        torch.manual_seed(0)
        model = models.build(registry.find("models", "gin").Config(name="gin", dropout=0.0, hidden=8), 5, 3)
        convs.bind(model, Kernels(), transform_first=True, fold_norm=True, keep_aggregation=keep)
        optimizer, adjacency = torch.optim.SGD(model.parameters(), lr=0.01), graph()
        for _ in range(5):
            loss = model(x, adjacency).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.setdefault(keep, []).append(loss.detach())
    torch.testing.assert_close(losses[True], losses[False], rtol=1e-4, atol=1e-6)


def test_features_may_be_a_view_that_negates() -> None:
    conv = pyg.SAGEConv(3, 2).double()
    x = torch._neg_view(features(conv))
    expected = conv(x, EDGES)
    keeping(conv)
    torch.testing.assert_close(conv(x, Graph.from_edge_index(EDGES, NODES)), expected)
