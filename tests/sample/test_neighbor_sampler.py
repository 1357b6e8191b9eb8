"""NeighborSampler in PyG's loaders: the same batches whoever draws them, and what PyG expects of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader, NeighborLoader, NodeLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.sampler import NegativeSampling
from torch_geometric.utils import trim_to_layer

import gnnbench
from gnnbench import NeighborSampler
from gnnbench.backends import isplib
from gnnbench.errors import BackendUnavailable, ConfigError, GraphError, UnsupportedOp
from tests.support import graphs

pytestmark = pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built")
EDGES, NODES, _ = graphs.zoo()["power law"]
DATA = Data(
    x=torch.arange(NODES * 3.0).view(NODES, 3),
    y=torch.arange(NODES),
    edge_index=EDGES,
    edge_attr=torch.arange(EDGES.size(1) * 2.0).view(-1, 2),
)


@pytest.fixture(autouse=True)
def four_threads() -> Iterator[None]:
    """In this process, which workers are forked from."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def loader(sampler: NeighborSampler, **options: Any) -> NodeLoader:
    return NodeLoader(DATA, sampler, batch_size=16, **options)


def drawn(batches: NodeLoader) -> list[Tensor]:
    """The edges of every batch."""
    return [batch.e_id for batch in batches]


def equal(some: list[Tensor], others: list[Tensor]) -> list[bool]:
    return [torch.equal(one, other) for one, other in zip(some, others, strict=True)]


@pytest.mark.parametrize("replace", [False, True], ids=["without", "with replacement"])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_parts_of_the_data_with_the_seeds_first(workers: int, replace: bool) -> None:
    sampler = NeighborSampler(DATA, [4, 3], replace=replace)
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True, "num_workers": workers}
    for batches in (
        NodeLoader(DATA, sampler, **options),
        NeighborLoader(DATA, [4, 3], neighbor_sampler=sampler, **options),
    ):
        seeds = []
        for batch in batches:
            assert torch.equal(DATA.edge_index[:, batch.e_id], batch.n_id[batch.edge_index])
            assert torch.equal(DATA.edge_attr[batch.e_id], batch.edge_attr)
            assert torch.equal(DATA.x[batch.n_id], batch.x)
            assert batch.num_sampled_nodes[0] == batch.batch_size
            assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)
            assert bool((batch.edge_index[1].diff() >= 0).all())
            assert sampler.edge_permutation is None
            seeds.append(batch.input_id)
        assert torch.equal(torch.cat(seeds).sort().values, torch.arange(NODES))


def test_batches_are_the_same_for_any_number_of_workers() -> None:
    expected = drawn(loader(NeighborSampler(DATA, [4, 3])))
    for workers in (1, 2):
        assert all(equal(drawn(loader(NeighborSampler(DATA, [4, 3]), num_workers=workers)), expected))
    graph = gnnbench.Graph.from_edge_index(EDGES, NODES)
    assert all(equal(drawn(loader(NeighborSampler(graph, [4, 3]))), expected))
    assert not any(equal(drawn(loader(NeighborSampler(DATA, [4, 3], seed=1))), expected))


def test_an_epoch_that_is_told_draws_anew_in_workers_that_persist_too() -> None:
    expected = []
    sampler = NeighborSampler(DATA, [4, 3])
    for epoch in range(3):
        sampler.epoch = epoch
        expected.append(drawn(loader(sampler)))
    assert not any(equal(expected[0], expected[1]) + equal(expected[0], expected[2]))
    sampler = NeighborSampler(DATA, [4, 3])
    persistent = loader(sampler, num_workers=2, persistent_workers=True)
    for epoch in (0, 2, 1, 1):
        sampler.epoch = epoch
        assert all(equal(drawn(persistent), expected[epoch]))


def test_trimming_to_a_layer_leaves_the_seeds_as_they_are() -> None:
    torch.manual_seed(0)
    convs = [SAGEConv(3, 3) for _ in range(3)]
    for batch in loader(NeighborSampler(DATA, [5, 4, 3])):
        whole, x, edge_index = batch.x, batch.x, batch.edge_index
        for layer, conv in enumerate(convs):
            x, edge_index, _ = trim_to_layer(
                layer, batch.num_sampled_nodes, batch.num_sampled_edges, x, edge_index
            )
            x, whole = conv(x, edge_index), conv(whole, batch.edge_index)
        assert len(x) == sum(batch.num_sampled_nodes[:2])
        torch.testing.assert_close(x[: batch.batch_size], whole[: batch.batch_size])


def test_edges_are_seeds_too() -> None:
    options = {"edge_label_index": EDGES[:, :100], "neg_sampling": NegativeSampling("binary"), "batch_size": 20}
    for batch in LinkLoader(DATA, NeighborSampler(DATA, [4, 3]), **options):
        positive = batch.n_id[batch.edge_label_index][:, :20]
        assert torch.equal(positive, EDGES[:, batch.input_id])
        assert torch.equal(DATA.edge_index[:, batch.e_id], batch.n_id[batch.edge_index])
        assert batch.edge_label.tolist() == [1.0] * 20 + [0.0] * 20


def test_a_graph_without_edges_has_batches_of_seeds() -> None:
    data = Data(x=torch.zeros(5, 2), edge_index=torch.zeros(2, 0, dtype=torch.int64))
    (batch,) = NodeLoader(data, NeighborSampler(data, [2, 2]), batch_size=5)
    assert batch.n_id.tolist() == [0, 1, 2, 3, 4]
    assert (batch.num_sampled_nodes, batch.num_sampled_edges) == ([5, 0, 0], [0, 0])


@pytest.mark.parametrize(
    ("make", "error", "problem"),
    [
        (lambda: NeighborSampler(DATA, []), ConfigError, r"num_neighbors is \[\], but must list"),
        (lambda: NeighborSampler(DATA, [5, -2]), ConfigError, r"num_neighbors is \[5, -2\], but must list"),
        (lambda: NeighborSampler(DATA, [2.5]), ConfigError, r"num_neighbors is \[2.5\]"),
        (lambda: NeighborSampler(DATA, 5), ConfigError, "num_neighbors is 5"),
        (lambda: NeighborSampler(HeteroData(), [5]), UnsupportedOp, "not HeteroData"),
        (lambda: NeighborSampler(Data(x=DATA.x), [5]), GraphError, "data.edge_index, which is missing"),
        (lambda: NeighborSampler(Data(edge_index=EDGES, num_nodes=3), [5]), GraphError, "range of 0 to 2"),
        (lambda: NeighborSampler(graphs.graph("wide"), [5]), GraphError, "square graph"),
        (lambda: seeds([0, NODES]), ConfigError, f"there is no node {NODES}; the {NODES} nodes"),
        (lambda: seeds([-1]), ConfigError, "there is no node -1"),
        (lambda: seeds([]), ConfigError, r"shape \[0\], but must be a vector of at least one integer"),
        (lambda: seeds([0.5]), ConfigError, "torch.float32"),
        (lambda: seeds([[1]]), ConfigError, r"shape \[1, 1\]"),
        (lambda: [*loader(NeighborSampler(DATA, [5]), input_time=DATA.y)], UnsupportedOp, "without time"),
    ],
)
def test_bad_input_is_refused(make: Callable[[], Any], error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem) as caught:
        make()
    assert "\n" not in str(caught.value)


def seeds(of: list[Any]) -> None:
    NeighborSampler(DATA, [5]).sample(torch.tensor(of, dtype=None if of else torch.int64))


def test_without_kernels_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isplib._compiled, "MISSING", "no module")
    with pytest.raises(BackendUnavailable, match=r"NeighborSampler is unavailable: .*not built"):
        NeighborSampler(DATA, [5])
