"""The programs of PyG's own tests of convs on a graph that is worth it, prices of calls left as they are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric import nn as pyg
from torch_geometric.utils import coalesce, remove_self_loops

import gnnbench
from tests.patch.test_patch_convs import Arguments, outcome, rand, weights
from tests.support.dropin import BACKEND

NODES, ROWS, EDGES, WIDTH, ATTRIBUTES = 3_000, 2_000, 60_000, 64, 16
DRAWN = torch.Generator().manual_seed(0)
GRAPH = remove_self_loops(coalesce(torch.randint(NODES, (2, EDGES), generator=DRAWN)))[0]
GRAPH = GRAPH[:, torch.randperm(GRAPH.size(1), generator=DRAWN)]
PAIR = torch.stack([torch.randint(size, (EDGES,), generator=DRAWN) for size in (NODES, ROWS)])


def x(rows: int = NODES) -> Tensor:
    return rand(rows, WIDTH, seed=rows)


def sparse(layout: str, value: Tensor | None = None) -> Tensor:
    value = torch.ones(GRAPH.size(1), dtype=torch.float64) if value is None else value
    return getattr(torch.sparse_coo_tensor(GRAPH.flip(0), value, (NODES, NODES)).coalesce(), layout)()


FORMS: dict[str, Callable[[], Arguments]] = {
    "plain": lambda: {"x": x(), "edge_index": GRAPH.clone()},
    "size": lambda: {"x": x(), "edge_index": GRAPH.clone(), "size": (NODES, NODES)},
    "coo": lambda: {"x": x(), "edge_index": sparse("to_sparse_coo")},
    "csr": lambda: {"x": x(), "edge_index": sparse("to_sparse_csr")},
    "csc": lambda: {"x": x(), "edge_index": sparse("to_sparse_csc")},
    "values": lambda: {
        "x": x(), "edge_index": sparse("to_sparse_csr", weights(GRAPH.size(1)).detach()),
    },
    "EdgeIndex": lambda: {"x": x(), "edge_index": EdgeIndex(GRAPH.clone(), sparse_size=(NODES, NODES))},
    "weights": lambda: {"x": x(), "edge_index": GRAPH.clone(), "edge_weight": weights(GRAPH.size(1))},
    "edges": lambda: {"x": x(), "edge_index": GRAPH.clone(), "edge_attr": rand(GRAPH.size(1), ATTRIBUTES, seed=2)},
    "pair": lambda: {"x": (x(), x(ROWS)), "edge_index": PAIR.clone()},
    "pair of a size": lambda: {"x": (x(), x(ROWS)), "edge_index": PAIR.clone(), "size": (NODES, ROWS)},
    "sources alone": lambda: {"x": (x(), None), "edge_index": PAIR.clone(), "size": (NODES, ROWS)},
    "returned": lambda: {"x": x(), "edge_index": GRAPH.clone(), "return_attention_weights": True},
    "returned of a pair": lambda: {
        "x": (x(), x(ROWS)), "edge_index": PAIR.clone(), "return_attention_weights": True,
    },
}  # fmt: skip
SPARSE, PAIRS = ("coo", "csr"), ("pair", "pair of a size")


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


BOTH = WIDTH, WIDTH
REVERSED: Any = {"flow": "target_to_source"}
EDGE: Any = {"heads": 2, "concat": False, "edge_dim": ATTRIBUTES}
PROGRAMS: list[tuple[str, Callable[[], Any], tuple[str, ...]]] = [
    ("gcn", lambda: pyg.GCNConv(WIDTH, WIDTH), ("plain", "weights", "EdgeIndex", "values", *SPARSE)),
    ("gcn improved", lambda: pyg.GCNConv(WIDTH, 32, improved=True), ("plain", "weights")),
    ("gcn cached", lambda: pyg.GCNConv(WIDTH, WIDTH, cached=True), ("plain",)),
    ("gcn without norm", lambda: pyg.GCNConv(WIDTH, WIDTH, normalize=False), ("plain", "weights", "csr")),
    ("gcn reversed", lambda: pyg.GCNConv(WIDTH, WIDTH, **REVERSED), ("plain", "weights")),
    ("sage", lambda: pyg.SAGEConv(WIDTH, WIDTH), ("plain", "size", "EdgeIndex", "csc", *SPARSE)),
    ("sage of pairs", lambda: pyg.SAGEConv(BOTH, 32, project=True), (*PAIRS, "sources alone")),
    ("sage max", lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr="max", normalize=True), ("plain", "pair")),
    ("sage reversed", lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr="sum", **REVERSED), ("plain",)),
    ("gin", lambda: pyg.GINConv(mlp(), train_eps=True), ("plain", "size", "csc", "csr", *PAIRS, "sources alone")),
    ("graph conv", lambda: pyg.GraphConv(WIDTH, WIDTH), ("plain", "size", "weights", "values", *PAIRS)),
    ("graph conv max", lambda: pyg.GraphConv(WIDTH, 32, aggr="max"), ("plain", "weights", "sources alone")),
    ("gat", lambda: pyg.GATConv(WIDTH, 32, heads=2, residual=True), ("plain", "size", "csr", "returned")),
    (
        "gat of pairs",
        lambda: pyg.GATConv(BOTH, 32, heads=2, add_self_loops=False),
        (*PAIRS, "returned of a pair"),
    ),
    ("gat of edges", lambda: pyg.GATConv(WIDTH, 32, fill_value="mean", **EDGE), ("edges",)),
    ("gat reversed", lambda: pyg.GATConv(WIDTH, 32, heads=2, **REVERSED), ("plain", "returned")),
    ("gatv2", lambda: pyg.GATv2Conv(WIDTH, 32, heads=2, share_weights=True), ("plain", "csr", "returned")),
    (
        "gatv2 of pairs",
        lambda: pyg.GATv2Conv(BOTH, 32, heads=2, add_self_loops=False),
        ("pair", "returned of a pair"),
    ),
    ("gatv2 of edges", lambda: pyg.GATv2Conv(WIDTH, 32, **EDGE), ("edges",)),
    ("transformer", lambda: pyg.TransformerConv(WIDTH, 32, heads=2, beta=True), ("plain", "csr", "returned")),
    (
        "transformer of pairs",
        lambda: pyg.TransformerConv(BOTH, 32, heads=2),
        ("pair", "returned of a pair"),
    ),
    ("transformer of edges", lambda: pyg.TransformerConv(WIDTH, 32, **EDGE), ("edges",)),
    ("agnn", lambda: pyg.AGNNConv(), ("plain", "csr")),
    ("agnn reversed", lambda: pyg.AGNNConv(requires_grad=False, **REVERSED), ("plain",)),
]


def check(make: Callable[[], Any], given: list[Arguments]) -> None:
    """PyG's outputs and gradients are met, and every call was accelerated."""
    torch.manual_seed(0)
    conv = make().double()
    for parameter in conv.parameters():
        nn.init.normal_(parameter, std=0.2)
    twin, name = copy.deepcopy(conv), type(conv).__name__
    for calls, arguments in enumerate(given, 1):
        expected = outcome(conv, arguments)
        assert not isinstance(expected, type), f"PyG raises {expected}"
        with gnnbench.patched(BACKEND):
            torch.testing.assert_close(outcome(twin, arguments), expected, rtol=1e-9, atol=1e-9)
        status = gnnbench.patch_status()
        assert (status.accelerated.get(name), status.declined) == (calls, {})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("make", "forms"), [pytest.param(*rest, id=name) for name, *rest in PROGRAMS])
def test_programs_of_pygs_tests(make: Callable[[], Any], forms: tuple[str, ...]) -> None:
    check(make, [FORMS[form]() for form in forms])


def test_messages_that_are_written_out_gain_on_a_graph_that_is_sorted_already() -> None:
    arguments = {"x": rand(NODES, 192), "edge_index": GRAPH.clone(), "edge_attr": rand(GRAPH.size(1), ATTRIBUTES)}
    with gnnbench.patched(BACKEND):
        pyg.GraphConv(WIDTH, WIDTH).double()(x(), arguments["edge_index"])
    check(lambda: pyg.GINEConv(nn.Linear(192, WIDTH), edge_dim=ATTRIBUTES, train_eps=True), [arguments])


@pytest.mark.parametrize("kind", [pyg.GCNConv, pyg.SAGEConv])
def test_scripts_run_pygs_code(kind: Any) -> None:
    conv, features = kind(WIDTH, WIDTH), x().detach().float()
    expected = conv(features, GRAPH)
    with gnnbench.patched(BACKEND):
        torch.testing.assert_close(torch.jit.script(conv)(features, GRAPH), expected)
    assert not gnnbench.patch_status().accelerated
