"""Second derivatives: of every op by gradgradcheck, and of PyG's convs and softmax patched against unpatched."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import utils

import gnnbench
from gnnbench.graph import Graph
from gnnbench.ops.attention import attention
from gnnbench.ops.edge import edge_softmax, fusedmm, sddmm
from gnnbench.ops.families import FAMILIES
from gnnbench.ops.kernels import EDGE_FNS
from gnnbench.ops.spmm import spmm, spmm_scaled
from tests.convs.test_convs import CONVS
from tests.patch.test_patch_convs import EDGE_CONVS, WEIGHTED, rand, weights, width
from tests.support import graphs
from tests.support.dropin import BACKEND, always, untouched  # noqa: F401
from tests.support.kernels import OURS

Use = tuple[Callable[..., Tensor], list[tuple[int, ...]]]  # an op and the shapes of its inputs


def attended(graph: Graph, family: str, dropout: float, *inputs: Tensor) -> Tensor:
    return attention(OURS, graph, family, inputs, dropout)


def uses(graph: Graph) -> dict[str, Use]:
    n, m, e = graph.num_rows, graph.num_cols, graph.num_edges
    x, heads, to = (m, 3), (m, 2, 3), (n, 2, 3)
    given: dict[str, Use] = {
        "edge_softmax": (partial(edge_softmax, OURS, graph), [(e, 2)]),
        "sddmm": (partial(sddmm, OURS, graph), [(n, 3), x]),
        "sddmm of heads": (partial(sddmm, OURS, graph), [to, heads]),
        "one weight for all heads": (partial(spmm, OURS, graph), [heads, (e,)]),
    }
    ends = rand(m, 1, grad=False), rand(n, 1, grad=False)
    given["scaled"] = lambda x, bias: spmm_scaled(OURS, graph, x, *ends, bias), [x, (3,)]
    for reduce in ("sum", "mean", "min", "max"):
        given[reduce] = partial(spmm, OURS, graph, reduce=reduce), [x]
        given[f"weighted {reduce}"] = partial(spmm, OURS, graph, reduce=reduce), [x, (e,)]
    for reduce in ("sum", "mean"):
        given[f"{reduce} of heads"] = partial(spmm, OURS, graph, reduce=reduce), [heads, (e, 2)]
    for edge_fn in EDGE_FNS:
        given[f"fusedmm {edge_fn}"] = partial(fusedmm, OURS, graph, edge_fn=edge_fn), [(n, 3), x]
    given["fusedmm of heads"] = partial(fusedmm, OURS, graph, edge_fn="sigmoid"), [to, heads]
    sizes = {"N": n, "M": m, "H": 2, "C": 3, "D": 4}
    for name, family in FAMILIES.items():
        shapes = [tuple(sizes[dim] for dim in dims) for dims in family.inputs.values()]
        given[name] = partial(attended, graph, name, 0.0), shapes
        given[f"{name} with dropout"] = partial(attended, graph, name, 0.4), shapes
    return given


NAMES = list(uses(graphs.graph("hub")))
over_uses = pytest.mark.parametrize("name", NAMES)


def used(name: str, graph_name: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    """An op, which always drops the same, and its inputs."""
    op, shapes = uses(graphs.graph(graph_name, OURS))[name]

    def seeded(*inputs: Tensor) -> Tensor:
        torch.manual_seed(1)
        return op(*inputs)

    return seeded, [rand(*shape, seed=seed) for seed, shape in enumerate(shapes)]


@pytest.mark.parametrize("graph_name", graphs.SMALL)
@over_uses
def test_gradgradcheck(name: str, graph_name: str) -> None:
    assert torch.autograd.gradgradcheck(*used(name, graph_name))


@over_uses
def test_gradients_are_those_of_the_kernels(name: str) -> None:
    """Where inputs tie too; and the program may have let go of the Graph before the second derivative."""
    op, inputs = used(name, "power law")
    inputs = [tensor.detach().mul(2).round().requires_grad_() for tensor in inputs]
    expected = torch.autograd.grad(op(*inputs).pow(2).sum(), inputs)
    found = torch.autograd.grad(op(*inputs).pow(2).sum(), inputs, create_graph=True)
    for gradient, truth in zip(found, expected, strict=True):
        assert graphs.relative_error(gradient.detach(), truth) < 1e-12
    del op
    gc.collect()
    penalty = torch.stack([gradient.pow(2).sum() for gradient in found]).sum()
    assert all(second.isfinite().all() for second in torch.autograd.grad(penalty, inputs))


def test_third_derivative() -> None:
    for name in ("weighted mean", "edge_softmax", "gat with dropout", "fusedmm tanh"):
        op, inputs = used(name, "knot")

        def penalty(*inputs: Tensor, op: Callable[..., Tensor] = op) -> Tensor:
            gradients = torch.autograd.grad(op(*inputs).pow(2).sum(), inputs, create_graph=True)
            return torch.cat([gradient.flatten() for gradient in gradients])

        assert torch.autograd.gradgradcheck(penalty, inputs, fast_mode=True)


EVERY_OP = ["weighted mean", "weighted max", "sddmm", "edge_softmax", "fusedmm tanh", *FAMILIES]


@pytest.mark.parametrize("how", ["eager", "compiled", "create_graph"])
@pytest.mark.parametrize("name", EVERY_OP)
def test_only_with_create_graph_plain_torch_takes_over(name: str, how: str) -> None:
    """Seen by the names that the profiler shows."""
    op, shapes = uses(graphs.graph("hub", OURS))[name]
    inputs = [rand(*shape) for shape in shapes]
    torch._dynamo.reset()
    run: Any = torch.compile(op, backend="aot_eager", fullgraph=True) if how == "compiled" else op
    with torch.profiler.profile() as profile:
        torch.autograd.grad(run(*inputs).sum(), inputs, create_graph=how == "create_graph")
    shown = {event.key for event in profile.key_averages() if event.key.startswith("gnnbench::")}
    ours = {key for key in shown if "_grad_" in key or key.endswith("_backward")}
    assert bool(ours) == (how != "create_graph"), shown


def penalised(function: Callable[[], Tensor], wanted: list[Tensor]) -> list[Tensor]:
    """A result, the gradients of its mean square, and the gradients of a penalty on those."""
    out = function()
    gradients = torch.autograd.grad(out.square().mean(), wanted, create_graph=True, materialize_grads=True)
    penalty = torch.stack([gradient.square().sum() for gradient in gradients]).sum()
    return [out, *gradients, *torch.autograd.grad(penalty, wanted, materialize_grads=True)]


def check(function: Callable[[], Tensor], wanted: list[Tensor]) -> None:
    """Compare patched with unpatched."""
    expected = penalised(function, wanted)
    with gnnbench.patched(BACKEND, strict=True):
        found = penalised(function, wanted)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    assert gnnbench.patch_status().accelerated


CASES = {name: (make, "") for name, make in CONVS.items()}
CASES |= {f"{name} with edge_attr": (make, "edge_attr") for name, make in EDGE_CONVS.items()}
CASES |= {f"{name} with edge_weight": (make, "edge_weight") for name, make in WEIGHTED.items()}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("case", CASES)
def test_convs(case: str) -> None:
    edge_index, nodes, _ = graphs.SMALL["knot"]
    make, over_edges = CASES[case]
    torch.manual_seed(0)
    conv = make().double()
    for parameter in conv.parameters():
        nn.init.normal_(parameter, std=0.5)
    inputs = {"x": rand(nodes, width(conv))}
    if over_edges:
        edges = edge_index.size(1)
        inputs[over_edges] = rand(edges, 5) if over_edges == "edge_attr" else weights(edges)
    check(lambda: conv(edge_index=edge_index, **inputs), [*inputs.values(), *conv.parameters()])


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_softmax(shape: tuple[int, ...]) -> None:
    edge_index, nodes, _ = graphs.zoo()["hub"]
    src = rand(edge_index.size(1), *shape)
    check(lambda: utils.softmax(src, edge_index[1], num_nodes=nodes), [src])
