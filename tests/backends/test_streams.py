"""Streams of a GPU and recordings of them: what is kept of a graph is complete when another stream finds it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as pyg
from torch_geometric import utils

import gnnbench
from gnnbench.graph import Compressed, CSRBuilder, Graph
from gnnbench.graph.cache import GraphCache
from gnnbench.patch import engine, functions
from gnnbench.patch.engine import CAPTURED
from tests.support.dropin import always, untouched  # noqa: F401

pytestmark = pytest.mark.usefixtures("always")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU with streams")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NODES, CYCLES = 1000, 200_000_000  # a tenth of a second


class Slow(CSRBuilder):
    """Sorts long after it has returned."""

    def csr(self, row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Compressed:
        sorted_edges = super().csr(row, col, num_rows, num_cols)
        torch.cuda._sleep(CYCLES)
        return Compressed(*(tensor.clone() for tensor in sorted_edges))


def edges() -> Tensor:
    return torch.randint(NODES, (2, 20_000), generator=torch.Generator().manual_seed(0)).to(DEVICE)


def test_nothing_is_found_before_its_stream_was_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    edge_index, cache, there = edges(), GraphCache(CSRBuilder(), 1 << 30), []
    graph = Graph.from_edge_index(edge_index, NODES)
    for name in ("graph", "graph.cache"):
        monkeypatch.setattr(
            f"gnnbench.{name}.synchronize",
            lambda _: there.append(("degree" in vars(graph), "plan" in graph.cache, len(cache))),
        )
    _ = graph.degree, graph.once("plan", list), cache.graph(edge_index, NODES, NODES)
    assert there == [(False, False, 0), (True, False, 0), (True, True, 0)]


@needs_gpu
@pytest.mark.parametrize("derived", [lambda graph: graph.col, lambda graph: graph.transpose.col])
def test_another_stream_finds_what_is_kept_complete(derived: Callable[[Graph], Tensor]) -> None:
    edge_index, cache = edges(), GraphCache(Slow(), 1 << 30)
    expected = derived(Graph.from_edge_index(edge_index, NODES))
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        derived(cache.graph(edge_index, NODES, NODES))
    with torch.cuda.stream(torch.cuda.Stream()):
        found = derived(cache.graph(edge_index, NODES, NODES)).clone()
    torch.cuda.synchronize()
    assert torch.equal(found, expected)


def test_what_cannot_be_recorded_is_left_to_pyg(monkeypatch: pytest.MonkeyPatch) -> None:
    known, new, x = edges(), edges(), torch.randn(NODES, 32, device=DEVICE)
    conv, ptr = pyg.SAGEConv(32, 32).to(DEVICE), torch.tensor([0, 300, NODES], device=DEVICE)
    gnnbench.patch_pyg("cuda" if DEVICE == "cuda" else "reference")
    conv(x, known)
    for module in (engine, functions):
        monkeypatch.setattr(module, "captured", lambda _: True)
    for edge_index in (known, new, known):
        conv(x, edge_index)
    utils.softmax(x, ptr=ptr)
    assert gnnbench.patch_status().accelerated == {"SAGEConv": 3}
    assert gnnbench.patch_status().declined == {("SAGEConv", CAPTURED): 1, ("softmax", CAPTURED): 1}


@needs_gpu
def test_a_recorded_conv_gives_what_it_gives_otherwise() -> None:
    edge_index, x = edges(), torch.randn(NODES, 32, device=DEVICE)
    conv = pyg.GATConv(32, 32).to(DEVICE)
    with torch.no_grad():
        expected = conv(x, edge_index)
        gnnbench.patch_pyg("cuda")
        conv(x, edge_index)
        recording = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recording):
            out = conv(x, edge_index)
    recording.replay()
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
    assert gnnbench.patch_status().accelerated == {"GATConv": 2}
