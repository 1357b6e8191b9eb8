"""PyG's own NeighborLoader under the drop-in, where neither pyg-lib nor torch-sparse is installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.typing
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
from torch_geometric.sampler import BidirectionalNeighborSampler, NeighborSampler
from torch_geometric.utils import is_undirected

import gnnbench
from gnnbench import patch
from gnnbench.backends import isplib
from gnnbench.errors import ConfigError, UnsupportedOp
from gnnbench.patch.status import TALLY
from tests.support import graphs
from tests.support.real_data import REAL, needs_data

pytestmark = [
    pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built"),
    pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without"),  # before it is patched
]
EDGES, NODES, _ = graphs.zoo()["power law"]
DATA = Data(
    x=torch.arange(NODES * 3.0).view(NODES, 3),
    edge_index=EDGES,
    edge_attr=torch.arange(EDGES.size(1) * 2.0).view(-1, 2),
)
METHODS = {name: vars(NeighborSampler)[name] for name in ("__init__", "_sample")}


@pytest.fixture(autouse=True)
def without_pyg_lib(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", False)
    monkeypatch.setattr(torch_geometric.typing, "WITH_TORCH_SPARSE", False)
    TALLY.clear()
    yield
    gnnbench.unpatch_pyg()
    assert {name: vars(NeighborSampler)[name] for name in METHODS} == METHODS


def loader(data: Any = DATA, **options: Any) -> NeighborLoader:
    return NeighborLoader(data, **{"num_neighbors": [4, 3], "batch_size": 16, "shuffle": True, **options})


def check(batch: Data) -> None:
    assert torch.equal(EDGES[:, batch.e_id], batch.n_id[batch.edge_index])
    assert torch.equal(DATA.edge_attr[batch.e_id], batch.edge_attr)
    assert torch.equal(DATA.x[batch.n_id], batch.x)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("replace", [False, True])
def test_the_untouched_loader_works(workers: int, replace: bool, recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(ImportError, match=r"requires either 'pyg-lib' or 'torch-sparse'$"):
        next(iter(loader()))
    recwarn.clear()
    gnnbench.patch_pyg()
    seeds = []
    for batch in loader(num_workers=workers, replace=replace):
        check(batch)
        assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)
        degree = torch.bincount(EDGES[1], minlength=NODES)[batch.input_id]
        expected = (degree > 0) * 4 if replace else degree.clamp(max=4)
        assert batch.num_sampled_edges[0] == int(expected.sum())
        seeds.append(batch.input_id)
    assert torch.equal(torch.cat(seeds).sort().values, torch.arange(NODES))
    assert not [warning for warning in recwarn if "pyg-lib" in str(warning.message)]
    assert gnnbench.patch_status().accelerated == ({} if workers else {"sampler": len(seeds)})
    assert "sampler" in gnnbench.patch_status().patched


def test_batches_follow_torchs_seed_and_differ_by_epoch() -> None:
    with gnnbench.patched():
        batches = loader(shuffle=False)
        torch.manual_seed(1)
        first, second = ([batch.e_id for batch in batches] for _ in range(2))
        torch.manual_seed(1)
        again = [batch.e_id for batch in batches]
    assert all(map(torch.equal, first, again))
    assert not any(map(torch.equal, first, second))


def test_edges_are_seeds_too() -> None:
    gnnbench.patch_pyg()
    for batch in LinkNeighborLoader(DATA, [4, 3], batch_size=20, neg_sampling_ratio=1.0):
        check(batch)
        size = batch.input_id.numel()
        assert torch.equal(batch.n_id[batch.edge_label_index][:, :size], EDGES[:, batch.input_id])
    for batch in loader(subgraph_type="bidirectional"):
        assert is_undirected(batch.edge_index)


def test_edges_are_followed_backwards_where_pyg_does() -> None:
    gnnbench.patch_pyg()
    sampler = BidirectionalNeighborSampler(DATA, [-1])
    seeds = torch.tensor([3, 7])
    for direction, end in ((sampler.forward_sampler, 1), (sampler.backward_sampler, 0)):
        direction.num_neighbors = [-1]
        out = direction._sample(seeds)
        edges = direction.perm[out.edge]
        assert torch.equal(torch.stack([out.node[out.row], out.node[out.col]]), EDGES[:, edges])
        assert torch.equal(edges.sort().values, torch.isin(EDGES[end], seeds).nonzero().flatten())


def typed(**more: Any) -> HeteroData:
    """Papers that cite papers, and their authors, with times and weights of edges."""
    data = HeteroData()
    data["paper"].x, data["paper"].year = DATA.x, torch.arange(NODES) % 7
    data["author"].num_nodes = 9
    data["paper", "cites", "paper"].edge_index = EDGES
    data["author", "writes", "paper"].edge_index = torch.stack(
        [torch.arange(NODES * 2) % 9, torch.arange(NODES * 2) // 2]
    )
    for store in data.edge_stores:
        store.at = torch.arange(store.num_edges) % 5
    data["paper", "rev_writes", "author"].edge_index = data["author", "writes", "paper"].edge_index.flip(0)
    return data


def check_typed(batch: HeteroData, data: HeteroData) -> None:
    assert batch.node_types == data.node_types
    assert batch.edge_types == data.edge_types
    for type_ in data.node_types:
        assert sum(batch[type_].num_sampled_nodes) == batch[type_].num_nodes == len(batch[type_].n_id)
        assert type_ != "paper" or torch.equal(batch[type_].x, data[type_].x[batch[type_].n_id])
    for relation in data.edge_types:
        source, _, destination = relation
        row, col = batch[relation].edge_index
        local = torch.stack([batch[source].n_id[row], batch[destination].n_id[col]])
        assert torch.equal(data[relation].edge_index[:, batch[relation].e_id], local)
        assert sum(batch[relation].num_sampled_edges) == len(row)
        assert bool((col.diff() >= 0).all())
        if "batch" in batch[source]:
            assert torch.equal(batch[source].batch[row], batch[destination].batch[col])


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader_of_typed_graphs_works(workers: int) -> None:
    data, fanouts = typed(), {"cites": [4, 3], "writes": [-1, 2], "rev_writes": [0, 5]}
    with pytest.raises(ImportError, match="requires either"):
        next(iter(loader(data, input_nodes="paper")))
    gnnbench.patch_pyg()
    by_relation = {relation: fanouts[relation[1]] for relation in data.edge_types}
    seeds = []
    for batch in loader(data, num_neighbors=by_relation, input_nodes="paper", num_workers=workers):
        check_typed(batch, data)
        assert torch.equal(batch["paper"].n_id[: batch["paper"].batch_size], batch["paper"].input_id)
        assert batch["paper", "rev_writes", "author"].num_sampled_edges[0] == 0
        assert batch["author", "writes", "paper"].num_sampled_edges[0] == 2 * batch["paper"].batch_size
        seeds.append(batch["paper"].input_id)
    assert torch.equal(torch.cat(seeds).sort().values, torch.arange(NODES))
    for batch in loader(data, input_nodes="paper", subgraph_type="bidirectional"):
        row, col = batch["paper", "cites", "paper"].edge_index
        assert {*zip(row.tolist(), col.tolist(), strict=True)} == {*zip(col.tolist(), row.tolist(), strict=True)}


def test_typed_edges_are_seeds_too() -> None:
    gnnbench.patch_pyg()
    data, relation = typed(), ("author", "writes", "paper")
    edges = data[relation].edge_index
    for options in ({}, {"disjoint": True}, {"time_attr": "year", "edge_label_time": torch.arange(NODES * 2) % 7}):
        loaded = LinkNeighborLoader(
            data, [4, 3], (relation, edges), batch_size=20, neg_sampling="binary", **options
        )
        for batch in loaded:
            check_typed(batch, data)
            label, size = batch[relation].edge_label_index, batch[relation].input_id.numel()
            ends = torch.stack([batch["author"].n_id[label[0]], batch["paper"].n_id[label[1]]])
            assert torch.equal(ends[:, :size], edges[:, batch[relation].input_id])


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("time_attr", ["year", "at"])
def test_no_edge_comes_from_the_future(strategy: str, time_attr: str) -> None:
    """By times of nodes or of edges, whether each seed is given one or has one."""
    gnnbench.patch_pyg()
    data = typed()
    for given in (None, data["paper"].year.flip(0)):
        if given is None and time_attr == "at":
            with pytest.raises(ConfigError, match="seeds of type 'paper' have no time; give input_time"):
                next(iter(loader(data, input_nodes="paper", time_attr="at")))
            continue
        options = {"temporal_strategy": strategy, "time_attr": time_attr, "input_time": given}
        for batch in loader(data, input_nodes="paper", **options):
            check_typed(batch, data)
            ids = batch["paper"].input_id
            limit = (data["paper"].year if given is None else given)[ids]
            if time_attr == "year":
                hop = slice(batch["paper"].batch_size, None)
                assert bool((batch["paper"].year[hop] <= limit[batch["paper"].batch[hop]]).all())
                continue
            for relation in data.edge_types[:2]:
                trees = batch["paper"].batch[batch[relation].edge_index[1]]
                assert bool((batch[relation].at <= limit[trees]).all())


def test_weights_trees_and_induced_edges() -> None:
    gnnbench.patch_pyg()
    data = typed()
    writes = data["author", "writes", "paper"]
    writes.weight = (
        1.0 - torch.arange(writes.num_edges) % 2
    )  # of the two authors of a paper the second one has none
    for batch in loader(data, input_nodes="paper", num_neighbors=[1], weight_attr="weight"):
        check_typed(batch, data)
        assert bool((batch["author", "writes", "paper"].e_id % 2 == 0).all())
    for batch in loader(data, input_nodes="paper", disjoint=True):
        check_typed(batch, data)
        assert batch["paper"].batch[: batch["paper"].batch_size].tolist() == [*range(batch["paper"].batch_size)]
    for given, name in ((DATA, None), (data, "paper")):
        for batch in loader(given, input_nodes=name, subgraph_type="induced"):
            store = batch["paper", "cites", "paper"] if name else batch
            nodes = batch["paper"].n_id if name else batch.n_id
            inside = torch.isin(EDGES, nodes).all(0).nonzero().flatten()
            assert torch.equal(store.e_id.sort().values, inside)
            assert torch.equal(EDGES[:, store.e_id], nodes[store.edge_index])


def one(**fields: Any) -> Data:
    data = DATA.clone()
    return data.update(fields)


@pytest.mark.parametrize(
    ("make", "error", "problem"),
    [
        (lambda: loader(num_neighbors=[4, -2]), ConfigError, r"num_neighbors is \[4, -2\]"),
        (lambda: loader(input_nodes=torch.tensor([NODES])), ConfigError, f"there is no node {NODES}"),
        (lambda: loader(typed(), input_nodes=("paper", torch.tensor([NODES]))), ConfigError, "there is no node"),
        (lambda: loader(typed(), input_nodes=("venue", torch.tensor([0]))), ConfigError, "no node type 'venue'"),
        (lambda: loader(typed(), input_nodes="paper", num_neighbors={("a", "b", "c"): [1]}), ValueError, "exist"),
        (lambda: loader(subgraph_type="induced", disjoint=True), ValueError, "'disjoint' sampling not supported"),
        (lambda: loader(one(weight=torch.ones(3)), weight_attr="weight"), (ConfigError, IndexError), "3"),
        (lambda: loader(one(w=-torch.ones(EDGES.size(1))), weight_attr="w"), ConfigError, "numbers from 0 up"),
        (lambda: loader(one(time=torch.arange(NODES + 1)), time_attr="time"), (ConfigError, ValueError), "time"),
        (lambda: loader(one(time=torch.rand(NODES)), time_attr="time"), ConfigError, "must be .* whole numbers"),
        (
            lambda: loader(one(time=torch.arange(NODES)), time_attr="time", temporal_strategy="first"),
            ConfigError,
            "'last'",
        ),
        (
            lambda: loader(one(time=-EDGES[1]), time_attr="time", is_sorted=True, input_time=torch.arange(NODES)),
            ConfigError,
            "not sorted by time",
        ),
    ],
)
def test_bad_input_is_refused(make: Callable[[], Any], error: Any, problem: str) -> None:
    gnnbench.patch_pyg()
    with pytest.raises(error, match=problem):
        next(iter(make()))


def test_what_is_not_covered_is_pygs_error_with_our_reason() -> None:
    gnnbench.patch_pyg()
    sampler = NeighborSampler(DATA, [4])
    with pytest.raises(ImportError, match=r"requires either .*does not cover this: further arguments"):
        sampler._sample(torch.tensor([1]), more=1)
    assert gnnbench.patch_status().declined == {("sampler", "further arguments"): 1}
    gnnbench.patch_pyg(strict=True)
    with pytest.raises(UnsupportedOp, match="further arguments"):
        sampler._sample(torch.tensor([1]), more=1)


@pytest.mark.parametrize("library", ["WITH_PYG_LIB", "WITH_TORCH_SPARSE"])
def test_where_pyg_has_its_sampler_ours_has_to_be_asked_for(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_geometric.typing, library, True)
    gnnbench.patch_pyg()
    assert vars(NeighborSampler)["_sample"] is METHODS["_sample"]
    gnnbench.patch_pyg(names=["sampler"])
    assert gnnbench.patch_status().patched == ("sampler",)
    assert vars(NeighborSampler)["_sample"] is not METHODS["_sample"]
    check(next(iter(loader())))
    with gnnbench.unpatched():
        assert vars(NeighborSampler)["_sample"] is METHODS["_sample"]
    assert gnnbench.patch_status().accelerated == {"sampler": 1}


def test_a_sampler_takes_other_rows_and_its_memory_goes_with_it() -> None:
    gnnbench.patch_pyg()
    sampler = NeighborSampler(DATA, [-1])
    before = len(patch.sampler._neighbors)
    whole = sampler._sample(torch.tensor([3]))
    sampler.colptr, sampler.row = torch.zeros(NODES + 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    assert len(whole.edge) > len(sampler._sample(torch.tensor([3])).edge) == 0
    assert len(patch.sampler._neighbors) == before + 1
    del sampler
    assert len(patch.sampler._neighbors) == before


PROGRAM = """
import torch
import torch.nn.functional as F
from torch_geometric.datasets import Planetoid
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.transforms import NormalizeFeatures

torch.manual_seed(0)
data = Planetoid(root, name="Cora", transform=NormalizeFeatures())[0]
loader = NeighborLoader(data, [10, 10], input_nodes=data.train_mask, batch_size=50, shuffle=True)


class SAGE(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv(data.num_features, 64), SAGEConv(64, 7)])

    def forward(self, x, edge_index):
        x = F.dropout(self.convs[0](x, edge_index).relu(), p=0.5, training=self.training)
        return self.convs[1](x, edge_index)


model = SAGE()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(epochs):
    model.train()
    for batch in loader if sampled else [data]:
        optimizer.zero_grad()
        train = slice(batch.batch_size) if sampled else data.train_mask
        out = model(batch.x, batch.edge_index)
        F.cross_entropy(out[train], batch.y[train]).backward()
        optimizer.step()
model.eval()
with torch.no_grad():
    correct = model(data.x, data.edge_index).argmax(-1) == data.y
accuracy = float(correct[data.test_mask].float().mean())
"""


@needs_data
def test_sampled_training_is_as_accurate_as_that_of_the_full_batch(tmp_path: Path) -> None:
    shutil.copytree(REAL / "Planetoid/Cora/raw", tmp_path / "Cora/raw")
    gnnbench.patch_pyg()

    def accuracy(sampled: bool, epochs: int) -> float:
        names: dict[str, Any] = {"root": str(tmp_path), "__name__": "example"}
        names |= {"sampled": sampled, "epochs": epochs}
        exec(PROGRAM, names)
        return float(names["accuracy"])

    full = accuracy(sampled=False, epochs=30)
    assert full > 0.77
    assert accuracy(sampled=True, epochs=20) > full - 0.01
    assert gnnbench.patch_status().accelerated["sampler"] == 20 * 3
