"""torch.compile over bound convs: one graph without breaks, with the outputs and gradients of eager mode."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

from gnnbench import convs, models, registry
from gnnbench.errors import GnnbenchError
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels
from tests.support import gpu, graphs
from tests.support.kernels import OURS

MODELS = {
    "gcn": {},
    "sage": {"aggr": "mean"},
    "sage of maxima": {"aggr": "max"},
    "gin": {},
    "gat": {"heads": 2},
    "gatv2": {"heads": 2},
    "transformer": {"heads": 2},
    "agnn": {},
}
CASES = [(name, OURS) for name in MODELS]
if not gpu.MISSING:  # on a GPU or in Triton's interpreter: the same ops, which find other kernels by their handle
    CASES += [("sage of maxima", gpu.KERNELS), ("gat", gpu.KERNELS)]


@pytest.fixture(autouse=True)
def nothing_compiled_before() -> None:
    torch._dynamo.reset()


def bound(name: str, kernels: Kernels, *, rewrites: bool = True) -> nn.Module:
    torch.manual_seed(0)
    family = name.split()[0]
    config = registry.find("models", family).Config(name=family, dropout=0.0, hidden=8, **MODELS[name])
    model = models.build(config, 5, 3).to(kernels.device_type)
    convs.bind(model, kernels, transform_first=rewrites, fold_norm=rewrites)
    return model


def outcome(function: nn.Module, model: nn.Module, x: Tensor, graph: Graph) -> list[Tensor]:
    """The output of `function` and the gradients of its input and of the model's parameters."""
    out = function(x, graph)
    wanted = [x, *(parameter for parameter in model.parameters() if parameter.requires_grad)]
    return [out.detach(), *torch.autograd.grad(out.square().sum(), wanted)]


def features(graph: Graph) -> Tensor:
    x = torch.randn(graph.num_cols, 5, generator=torch.Generator().manual_seed(1))
    return x.to(graph.device).requires_grad_()


@pytest.mark.parametrize(("name", "kernels"), CASES)
def test_every_model_is_one_graph(name: str, kernels: Kernels) -> None:
    on_gpu = kernels is not OURS
    can_rewrite = name in ("gcn", "sage", "gin")
    for rewrites in (True, False)[: 1 + can_rewrite]:
        edge_index, nodes, _ = graphs.zoo()["duplicates" if on_gpu else "hub"]
        graph = Graph.from_edge_index(edge_index.to(kernels.device_type), nodes, layout=kernels)
        model = bound(name, kernels, rewrites=rewrites)
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        found = outcome(compiled, model, features(graph), graph)
        torch.testing.assert_close(found, outcome(model, model, features(graph), graph))
        with torch.no_grad():
            torch.testing.assert_close(compiled(features(graph), graph), found[0])


@pytest.mark.parametrize("name", ["gcn", "gat", "transformer"])
def test_autocast_is_compiled_too(name: str) -> None:
    model, graph = bound(name, OURS), graphs.graph("hub", OURS)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = (
            outcome(compiled, model, features(graph), graph),
            outcome(model, model, features(graph), graph),
        )
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)


def test_inductor() -> None:
    model, graph = bound("gcn", OURS), graphs.graph("power law", OURS)
    compiled = torch.compile(model, fullgraph=True)
    for _ in range(2):  # what a kernel or an op keeps must survive the buffers' reuse
        found = outcome(compiled, model, features(graph), graph)
        torch.testing.assert_close(found, outcome(model, model, features(graph), graph))


def test_one_compiled_model_runs_on_many_graphs_and_keeps_none_alive() -> None:
    kernels = Kernels()
    model = bound("gcn", kernels)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    gone = []
    for name in ("hub", "symmetric", "power law"):
        graph = graphs.graph(name, kernels)
        gone += [weakref.ref(graph), weakref.ref(graph.with_self_loops)]
        found = outcome(compiled, model, features(graph), graph)
        torch.testing.assert_close(found, outcome(model, model, features(graph), graph))
    del graph
    gc.collect()
    assert [reference() for reference in gone] == [None] * 6


def test_a_graph_that_is_gone_before_backward_is_named() -> None:
    kernels = Kernels()
    graph = graphs.graph("hub", kernels)
    out = torch.compile(bound("gcn", kernels), backend="aot_eager", fullgraph=True)(features(graph), graph)
    del graph
    gc.collect()
    with pytest.raises(GnnbenchError, match="no longer exists; keep the Graph and the model alive"):
        out.sum().backward()
