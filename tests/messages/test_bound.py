"""Layers that are called with a Graph give PyG's outputs and gradients, and say how they ran."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from gnnbench import convs
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.graph.cache import GraphCache
from gnnbench.messages import bound, norms
from gnnbench.ops.kernels import Kernels

N = 60
EDGES = torch.randint(N, (2, 500), generator=torch.Generator().manual_seed(0))
STREAMED = {"stream": "torch"}
SPMM = {"spmm": "torch"}


def results(layer: nn.Module, x: Tensor, adjacency: Any) -> list[Tensor]:
    out = layer(x, adjacency)
    seed = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    return [out, *torch.autograd.grad((out * seed).sum(), [x, *layer.parameters()])]


@pytest.mark.parametrize(
    ("layer", "ran"),
    [
        (pyg.SGConv(6, 5, K=2), SPMM),
        (pyg.ResGatedGraphConv(6, 5), STREAMED),
        (pyg.EdgeConv(nn.Linear(12, 5), flow="target_to_source"), STREAMED),
        (pyg.GCN2Conv(6, 0.5), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_layer_without_a_file_of_its_own_runs(layer: Any, ran: dict[str, str] | None) -> None:
    layer.double()
    x = torch.randn(N, 6, dtype=torch.float64, requires_grad=True)
    graph = Graph.from_edge_index(EDGES, N)
    if ran is None:  # whose forward has another order of arguments
        with pytest.raises(UnsupportedOp, match="GCN2Conv is called with x_0 before its edges"):
            convs.bind(layer, Kernels(), transform_first=True, fold_norm=True, rest=bound.bind)
        return
    expected = results(layer, x, EDGES)
    (binding,) = convs.bind(layer, Kernels(), transform_first=True, fold_norm=True, rest=bound.bind)
    torch.testing.assert_close(results(layer, x, graph), expected)
    assert (binding.conv, binding.kernels) == (type(layer).__name__, ran)


def test_edges_that_a_forward_makes_again_are_made_and_sorted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Graph] = []
    made: list[Any] = []
    monkeypatch.setattr(
        norms, "gcn_norm", lambda *given, **named: made.append(gcn_norm(*given, **named)) or made[-1]
    )
    build = GraphCache._build
    monkeypatch.setattr(GraphCache, "_build", lambda *given: built.append(build(*given)) or built[-1])
    model, graph = nn.ModuleList([pyg.SGConv(6, 6), pyg.TAGConv(6, 6)]), Graph.from_edge_index(EDGES, N)
    convs.bind(model, Kernels(), transform_first=True, fold_norm=True, rest=bound.bind)
    x = torch.randn(N, 6)
    for _ in range(3):
        for layer in model:
            x = layer(x, graph)
    assert len(built) == 1  # with loops, by SGConv; TAGConv adds none
    assert len(made) == 2


def test_a_layer_that_changed_is_refused() -> None:
    layer, graph = pyg.SGConv(6, 5), Graph.from_edge_index(EDGES, N)
    convs.bind(layer, Kernels(), transform_first=True, fold_norm=True, rest=bound.bind)
    layer.register_message_forward_hook(lambda *_: None)
    with pytest.raises(UnsupportedOp, match="SGConv has hooks on its messages"):
        layer(torch.randn(N, 6), graph)
    with pytest.raises(UnsupportedOp, match="0: SGConv has hooks on its messages"):
        convs.bind(nn.Sequential(layer), Kernels(), transform_first=True, fold_norm=True, rest=bound.bind)
