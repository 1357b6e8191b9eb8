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


def hetero() -> HeteroData:
    data = HeteroData()
    data["a"].x = DATA.x
    data["a", "to", "a"].edge_index = EDGES
    return data


def timed() -> Data:
    data = DATA.clone()
    data.time = torch.arange(NODES)
    return data


def weighted() -> Data:
    data = DATA.clone()
    data.weight = torch.ones(EDGES.size(1))
    return data


def edges_timed() -> Data:
    data = DATA.clone()
    data.edge_time = torch.arange(EDGES.size(1))
    return data


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: loader(hetero(), input_nodes="a"), "heterogeneous graphs"),
        (lambda: loader(timed(), time_attr="time"), "times"),
        (lambda: loader(disjoint=True), "disjoint=True"),
        (lambda: loader(subgraph_type="induced"), "subgraph_type='induced'"),
        (lambda: loader(weighted(), weight_attr="weight"), "edge weights"),
        (lambda: loader(edges_timed(), time_attr="edge_time"), "times of edges"),
    ],
)
def test_what_is_not_covered_is_pygs_error_with_our_reason(make: Callable[[], Any], problem: str) -> None:
    with pytest.raises(ImportError) as untouched:
        next(iter(make()))
    gnnbench.patch_pyg()
    with pytest.raises(ImportError, match=f"gnnbench's own sampler does not cover.*{problem}") as patched:
        next(iter(make()))
    assert str(patched.value).startswith(str(untouched.value))
    declined = gnnbench.patch_status().declined
    assert not declined or declined == {("sampler", problem): 1}
    gnnbench.patch_pyg(strict=True)
    with pytest.raises((UnsupportedOp, ImportError), match=problem):
        next(iter(make()))


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


def test_bad_input_is_refused() -> None:
    gnnbench.patch_pyg()
    with pytest.raises(ConfigError, match=r"num_neighbors is \[4, -2\]"):
        next(iter(loader(num_neighbors=[4, -2])))
    with pytest.raises(ConfigError, match=f"there is no node {NODES}"):
        next(iter(loader(input_nodes=torch.tensor([NODES]))))


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
