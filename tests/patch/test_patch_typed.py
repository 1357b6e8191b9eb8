"""Models of graphs of several types, as PyG's examples build them: outputs and gradients are PyG's, by kernels."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import HeteroData
from torch_geometric.datasets import DBLP

import gnnbench
from gnnbench.errors import UnsupportedOp
from tests.patch.test_patch_convs import rand
from tests.support.dropin import BACKEND
from tests.support.real_data import REAL, needs_data

pytestmark = pytest.mark.usefixtures("always")
NODES = {"user": 40, "item": 25, "tag": 9, "lone": 3}
RELATIONS = {
    ("user", "buys", "item"): 150,
    ("item", "bought", "user"): 150,
    ("user", "knows", "user"): 300,
    ("item", "has", "tag"): 0,
    ("tag", "of", "item"): 30,
    ("user", "likes", "item"): 20,
}
IN, HIDDEN, OUT = 6, 8, 4


def synthetic(lone: bool) -> HeteroData:
    """Duplicate edges, nodes and a relation without any and, if that is to be, a type without relations."""
    data = HeteroData()
    for kind, count in NODES.items():
        if lone or kind != "lone":
            data[kind].x = rand(count, IN, grad=False, seed=count)
    generator = torch.Generator().manual_seed(1)
    for (source, name, destination), count in RELATIONS.items():
        ends = [torch.randint(NODES[kind] - 2, (count,), generator=generator) for kind in (source, destination)]
        data[source, name, destination].edge_index = torch.stack(ends)
    return data


class Dictionary(nn.Module):
    """Convs that take features and edges by type, and a linear layer for every type."""

    def __init__(self, *convs: nn.Module, width: int = HIDDEN) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.last = pyg.HeteroDictLinear(width, OUT, [*NODES, "author", "paper", "term", "conference"])

    def forward(self, x: dict[str, Tensor], edges: dict[Any, Tensor]) -> dict[str, Tensor]:
        for conv in self.convs:
            x = {kind: out.relu() for kind, out in conv(x, edges).items() if out is not None}
        return self.last(x)


class Homogeneous(nn.Module):
    """Two convs, to be copied for every relation."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = make(), make()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Relational(nn.Module):
    """Nodes of all types as one, with the relation of every edge."""

    def __init__(self, data: HeteroData, make: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.encode = pyg.HeteroDictLinear({kind: x.size(1) for kind, x in data.x_dict.items()}, HIDDEN)
        self.conv, self.sizes = make(len(data.edge_types)), {kind: len(x) for kind, x in data.x_dict.items()}

    def forward(self, x: dict[str, Tensor], edges: dict[Any, Tensor]) -> dict[str, Tensor]:
        joined = HeteroData({kind: {"x": each} for kind, each in self.encode(x).items()})
        for relation, edge_index in edges.items():
            joined[relation].edge_index = edge_index
        whole = joined.to_homogeneous()
        out = self.conv(whole.x, whole.edge_index, whole.edge_type)
        return dict(zip(x, out.split([*self.sizes.values()]), strict=True))


def by_relation(
    data: HeteroData, make: Callable[[tuple[str, str, str]], nn.Module], aggr: str = "sum"
) -> nn.Module:
    return pyg.HeteroConv({relation: make(relation) for relation in data.edge_types}, aggr)


def widths(data: HeteroData) -> dict[str, int]:
    return {kind: x.size(1) for kind, x in data.x_dict.items()}


PROGRAMS: dict[str, tuple[set[str], Callable[[HeteroData], nn.Module]]] = {
    "hgt": (
        {"HGTConv"},
        lambda data: Dictionary(
            pyg.HGTConv(widths(data), HIDDEN, data.metadata(), heads=2),
            pyg.HGTConv(HIDDEN, HIDDEN, data.metadata(), heads=4),
        ),
    ),
    "han": ({"HANConv"}, lambda data: Dictionary(pyg.HANConv(widths(data), HIDDEN, data.metadata(), heads=2))),
    "to_hetero": (
        {"SAGEConv"},
        lambda data: pyg.to_hetero(Homogeneous(lambda: pyg.SAGEConv((-1, -1), HIDDEN)), data.metadata()),
    ),
    "to_hetero with attention": (
        {"GATConv"},
        lambda data: pyg.to_hetero(
            Homogeneous(lambda: pyg.GATConv((-1, -1), HIDDEN, add_self_loops=False)), data.metadata(), "mean"
        ),
    ),
    "bipartite": (
        {"SAGEConv", "GATv2Conv"},
        lambda data: Dictionary(
            by_relation(data, lambda relation: pyg.SAGEConv((-1, -1), HIDDEN)),
            by_relation(data, lambda relation: pyg.GATv2Conv((-1, -1), HIDDEN, add_self_loops=False), "max"),
        ),
    ),
    "rgcn": ({"RGCNConv"}, lambda data: Relational(data, lambda count: pyg.RGCNConv(HIDDEN, OUT, count, 3))),
    "rgat": ({"RGATConv"}, lambda data: Relational(data, lambda count: pyg.RGATConv(HIDDEN, OUT, count, heads=2))),
}


def outcome(model: nn.Module, data: HeteroData) -> list[Tensor]:
    """Outputs of all types, and the gradients of features and parameters."""
    out = {kind: each for kind, each in model(data.x_dict, data.edge_index_dict).items() if each is not None}
    loss = sum(
        (each * torch.linspace(1, 2, each.numel(), dtype=each.dtype).view(each.shape)).sum()
        for each in out.values()
    )
    wanted = [*data.x_dict.values(), *model.parameters()]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    pairs = zip(wanted, found, strict=True)
    return [*out.values(), *(torch.zeros_like(each) if grad is None else grad for each, grad in pairs)]


def rms(x: Tensor) -> float:
    return float(x.detach().double().square().mean().sqrt()) if x.numel() else 0.0


def check(program: str, data: HeteroData, dtype: torch.dtype, tolerance: float) -> None:
    """Compare by root mean square, relative to each tensor's, or to a hundredth of the largest one's."""
    torch.manual_seed(0)
    for store in data.node_stores:
        store.x = store.x.to(dtype).requires_grad_()
    names, make = PROGRAMS[program]
    model = make(data)
    with torch.no_grad():
        model.to(dtype)(data.x_dict, data.edge_index_dict)  # gives lazy layers their size
    twin = copy.deepcopy(model)
    expected = outcome(model, data)
    with gnnbench.patched(BACKEND, strict=True):
        found = outcome(twin, data)
    sizes = [rms(each) for each in expected]
    for ours, theirs, size in zip(found, expected, sizes, strict=True):
        assert ours.shape == theirs.shape
        assert rms(ours - theirs) <= tolerance * max(size, max(sizes) / 100)
    status = gnnbench.patch_status()
    assert {name for name, way in status.ways.items() if way == "kernels"} == names, status


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_on_a_synthetic_graph(program: str) -> None:
    data = synthetic(lone=not program.startswith("to_hetero"))  # which refuses what no relation ends at
    check(program, data, torch.float64, 1e-7)
    check(program, data, torch.float32, 1e-5)


@pytest.fixture(scope="module")
def dblp(tmp_path_factory: pytest.TempPathFactory) -> HeteroData:
    """Real authors, papers, terms and conferences; the last have no features, so that each gets a number."""
    root = tmp_path_factory.mktemp("dblp")
    shutil.copytree(REAL / "DBLP" / "raw", root / "raw")
    data = DBLP(str(root))[0]
    data["conference"].x = torch.eye(data["conference"].num_nodes)
    return data


@needs_data
@pytest.mark.parametrize("program", ["hgt", "to_hetero", "rgat"])
def test_programs_on_dblp(program: str, dblp: HeteroData) -> None:
    data = HeteroData(
        {kind: {"x": store.x} for kind, store in zip(dblp.node_types, dblp.node_stores, strict=True)}
    )
    for relation in dblp.edge_types:
        data[relation].edge_index = dblp[relation].edge_index
    check(program, data, torch.float32, 1e-5)


def test_what_is_not_covered_is_left_to_pyg() -> None:
    data = synthetic(lone=True)
    x, edges = data.x_dict, data.edge_index_dict
    cases: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "its own types": (x, edges, {"flow": "target_to_source"}),
        "another type": ({**x, "tag": x["tag"].float()}, edges, {}),
        "no features": ({kind: each for kind, each in x.items() if kind != "tag"}, edges, {}),
        "beyond": (x, {**edges, ("user", "likes", "item"): torch.tensor([[999], [0]])}, {}),
        "no edges": (x, {}, {}),
    }
    for case, (features, relations, options) in cases.items():
        conv = pyg.HANConv(IN, HIDDEN, data.metadata(), **options).double()
        expected, found = both(partial(conv, features, relations))
        assert found == expected if isinstance(expected, type) else equal(found, expected), case
        assert "HANConv" not in gnnbench.patch_status().accelerated, case


def both(call: Callable[[], Any]) -> tuple[Any, Any]:
    """Results of PyG and of the drop-in, or the types of what they raise."""

    def ended() -> Any:
        try:
            return call()
        except Exception as error:
            return type(error)

    expected = ended()
    with gnnbench.patched(BACKEND):
        return expected, ended()


def equal(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    torch.testing.assert_close(found, expected)
    return True


def test_options_sparse_adjacencies_and_edges_that_change() -> None:
    data = synthetic(lone=True)
    x, edges = data.x_dict, data.edge_index_dict
    sparse = {
        relation: torch.sparse_coo_tensor(
            each.flip(0), torch.ones(each.size(1), dtype=torch.float64), (NODES[relation[2]], NODES[relation[0]])
        ).to_sparse_csr()
        for relation, each in edges.items()
    }
    han, hgt = pyg.HANConv(IN, HIDDEN, data.metadata()).double(), pyg.HGTConv(IN, HIDDEN, data.metadata()).double()
    for call in (
        lambda: han(x, edges, return_semantic_attention_weights=True),
        lambda: han(edge_index_dict=sparse, x_dict=x),
        lambda: hgt(x, sparse),
        lambda: hgt(x, edges),
        lambda: edges["user", "likes", "item"].zero_() is None or hgt(x, edges),
    ):
        expected, found = both(call)
        torch.testing.assert_close(found, expected)
    assert gnnbench.patch_status().accelerated == {"HANConv": 2, "HGTConv": 3}, gnnbench.patch_status()
    with gnnbench.patched(BACKEND, strict=True), pytest.raises(UnsupportedOp, match="another order"):
        hgt(x, dict(reversed(edges.items())))
    dropping = pyg.HANConv(IN, HIDDEN, data.metadata(), dropout=1.0).double()
    with gnnbench.patched(BACKEND, strict=True):
        assert not dropping(x, edges)["user"].any()
