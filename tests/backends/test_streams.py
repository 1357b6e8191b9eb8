"""Streams of a GPU and recordings of them: what is kept of a graph is complete when another stream finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as pyg
from torch_geometric import utils

import gnnbench
from gnnbench.graph import Compressed, Graph, Layout
from gnnbench.graph.cache import GraphCache
from gnnbench.patch import cost
from gnnbench.patch.status import TALLY

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU with streams")
NODES, CYCLES = 1000, 200_000_000  # a tenth of a second


class Slow(Layout):
    """Sorts long after it has returned."""

    def csr(self, row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Compressed:
        sorted_edges = super().csr(row, col, num_rows, num_cols)
        torch.cuda._sleep(CYCLES)
        return Compressed(*(tensor.clone() for tensor in sorted_edges))


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cost, "FEW", 0)
    TALLY.clear()
    yield
    gnnbench.unpatch_pyg()


def edges() -> Tensor:
    return torch.randint(NODES, (2, 20_000), generator=torch.Generator().manual_seed(0)).cuda()


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


@pytest.mark.parametrize("known", [True, False])
def test_a_cuda_graph_records_ours_if_the_graph_is_there_and_else_pygs(known: bool) -> None:
    edge_index, x = edges(), torch.randn(NODES, 32, device="cuda")
    conv, ptr = pyg.GATConv(32, 32).cuda().eval(), torch.tensor([0, 300, NODES], device="cuda")

    @torch.no_grad()
    def work() -> tuple[Tensor, Tensor]:
        return conv(x, edge_index), utils.softmax(x, ptr=ptr)

    expected = work()
    gnnbench.patch_pyg("cuda")
    if known:
        conv(x, edge_index)
    recording = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recording):
        out = work()
    x.copy_(x.clone())
    recording.replay()
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
    assert gnnbench.patch_status().accelerated == ({"GATConv": 2} if known else {})
