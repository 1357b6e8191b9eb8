"""Layers of every class of PyG give PyG's outputs and gradients, by the way that the table says."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Collection, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric import EdgeIndex
from torch_geometric import nn as pyg

import gnnbench
from gnnbench.backends.cuda import CudaKernels
from gnnbench.errors import UnsupportedOp
from gnnbench.ops import stream
from gnnbench.ops.kernels import Kernels
from tests.support import absent, graphs, layers
from tests.support.dropin import BACKEND, always, unfused, untouched  # noqa: F401
from tests.support.gpu import DEVICE, needs_triton

ZOO = ["isolated nodes", "self loops", "duplicates", "symmetric", "hub", "power law"]


def everything(make: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    """A layer's output and all gradients, of what it is given and of its parameters."""
    torch.manual_seed(0)
    layer = make().double().to(g.x.device)
    out = call(layer, g)
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype, device=out.device).view(out.shape)
    wanted = [*(each for each in g if each.requires_grad), *layer.parameters()]
    if not out.requires_grad:  # as that of what spreads labels
        return [out]
    grads = torch.autograd.grad((out * weight).sum(), wanted, allow_unused=True)
    return [out, *(torch.zeros_like(w) if d is None else d for w, d in zip(wanted, grads, strict=True))]


def test_the_table_has_every_class() -> None:
    kinds = (getattr(pyg, name) for name in dir(pyg))
    found = {kind.__name__ for kind in kinds if inspect.isclass(kind) and issubclass(kind, pyg.MessagePassing)}
    assert found - {"MessagePassing"} == {*layers.LAYERS, *layers.ELSEWHERE}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few edges, so that small graphs have many."""
    monkeypatch.setattr(stream, "LEAST", 1)
    for kind in (Kernels, CudaKernels):
        monkeypatch.setattr(kind, "chunk_bytes", 4096)


@pytest.fixture
def runnable() -> Iterator[None]:
    """Every layer has what it calls, and fills tensors of float64, though MeshCNNConv names no type."""
    torch.set_default_dtype(torch.float64)
    with absent.supplied():
        yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("always", "short", "runnable")
@pytest.mark.parametrize("name", layers.LAYERS)
def test_a_class_is_exact(name: str) -> None:
    check_class(name, ZOO, BACKEND, "cpu")


@pytest.mark.usefixtures("always", "short", "runnable", "unfused")
@pytest.mark.parametrize("name", [name for name, (way, _) in layers.LAYERS.items() if way == "fused"])
def test_a_class_is_exact_where_it_is_streamed(name: str) -> None:
    check_class(name, ["duplicates", "hub"], BACKEND, "cpu", ("streamed",))


@needs_triton
@pytest.mark.usefixtures("always", "short")
@pytest.mark.parametrize("name", ["EdgeConv", "FAConv"])
def test_a_class_is_exact_by_triton(name: str) -> None:
    check_class(name, ["self loops"], "cuda", DEVICE)  # the smallest with duplicates: every row takes long here


def check_class(name: str, zoo: list[str], backend: str, device: Any, ways: Collection[str] = ()) -> None:
    way, cases = layers.LAYERS[name]
    for graph in zoo:
        edge_index, nodes, _ = graphs.zoo()[graph]
        g = layers.given(edge_index, nodes, device)
        for make, call in cases:
            expected = everything(make, call, g)
            with gnnbench.patched(backend):
                found = everything(make, call, g)
            for ours, theirs in zip(found, expected, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)
    status = gnnbench.patch_status()
    fuses = way != "fused" or backend == "isplib"
    assert status.ways.get(name, "PyG") in (ways or {way if fuses else "streamed"}), status


class Own(pyg.MessagePassing):
    """A layer of a user, whose message is `compute`, of itself and of what PyG gives it."""

    def __init__(self, compute: Any, **options: Any) -> None:
        super().__init__(**options)
        self.compute = compute
        self.lin = nn.Linear(layers.F, 4)
        self.norm = nn.BatchNorm1d(4)
        self.table = nn.Parameter(torch.rand(60, 4))
        self.zero = nn.Parameter(torch.zeros(1))
        self.log: list[int] = []

    def forward(self, x: Any, edge_index: Any, attr: Any = None, size: Any = None) -> Tensor:
        return self.propagate(edge_index, x=x, attr=attr, size=size)

    def message(self, x_i: Any, x_j: Tensor, attr: Any, index: Tensor) -> Tensor:
        return self.compute(self, x_i, x_j, attr, index)


def gated(own: Own, x_i: Any, x_j: Tensor, attr: Any, index: Tensor) -> Tensor:
    out = own.lin(x_j)
    out = out if x_i is None else out * own.lin(x_i).sigmoid()
    return out if attr is None else out * attr.sum(-1, keepdim=True)


def _rectangle(own: Any, g: layers.Given) -> Tensor:
    wide = g.edge_index % torch.tensor([[60], [11]])
    return own((g.x, g.x_0[:11]), wide, g.attr, size=(60, 11))


def _sources_alone(own: Any, g: layers.Given) -> Tensor:
    return own((g.x, None), g.edge_index % torch.tensor([[60], [11]]), size=(60, 11))


def _changed_in_place(own: Any, g: layers.Given) -> Tensor:
    x = g.x * 2
    out = own(x, g.edge_index, g.attr)
    with torch.no_grad():
        x.add_(1)
    return out


def _sparse(own: Any, g: layers.Given) -> Tensor:
    matrix = torch.sparse_coo_tensor(g.edge_index.flip(0), torch.ones(900).double(), (60, 60)).coalesce()
    return own(g.x, matrix.to_sparse_csr())


CALLS: dict[str, Any] = {
    "plain": lambda own, g: own(g.x, g.edge_index),
    "edge features": lambda own, g: own(g.x, g.edge_index, g.attr),
    "pair": lambda own, g: own((g.x, g.x_0), g.edge_index, g.attr),
    "features changed in place": _changed_in_place,
    "rectangle": _rectangle,
    "sources alone": _sources_alone,
    "EdgeIndex": lambda own, g: own(g.x, EdgeIndex(g.edge_index, sparse_size=(60, 60)).sort_by("col")[0]),
    "sparse": _sparse,
    "checkpoint": lambda own, g: checkpoint(own, g.x, g.edge_index, g.attr, use_reentrant=False),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.usefixtures("always", "short")
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("case", CALLS)
@pytest.mark.parametrize("way", ["fused", "streamed"])
def test_a_layer_of_a_user(case: str, flow: str, way: str, request: pytest.FixtureRequest) -> None:
    if way == "streamed":
        request.getfixturevalue("unfused")
    g = layers.given(graphs.zoo()["power law"][0], 60)
    if case in ("rectangle", "sources alone", "sparse", "EdgeIndex") and flow == "target_to_source":
        pytest.skip("PyG has these the other way round")
    expected = everything(lambda: Own(gated, flow=flow), CALLS[case], g)
    gnnbench.patch_pyg(BACKEND)
    found = everything(lambda: Own(gated, flow=flow), CALLS[case], g)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)
    taken = way if case in ("plain", "sources alone", "EdgeIndex", "sparse") else "streamed"  # for another width
    assert gnnbench.patch_status().ways == {"Own": taken}, gnnbench.patch_status()


@pytest.mark.usefixtures("always")
def test_what_a_message_computes_twice_has_both_gradients() -> None:
    g = layers.given(graphs.zoo()["hub"][0], 30)

    def call(own: Own, _: layers.Given) -> Tensor:
        return own(g.x, g.edge_index)

    def twice(own: Own, x_i: Tensor, x_j: Tensor, attr: Any, index: Tensor) -> Tensor:
        return x_j.sigmoid() * x_i * x_j.sigmoid() - 2 / (3 + x_j.sigmoid()) + (1 - x_i) * own.zero

    expected = everything(lambda: Own(twice, aggr="max"), call, g)
    with gnnbench.patched(BACKEND):
        found = everything(lambda: Own(twice, aggr="max"), call, g)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)
    assert gnnbench.patch_status().ways == {"Own": "fused" if BACKEND == "isplib" else "streamed"}


def remembers(own: Own, x_i: Any, x_j: Tensor, attr: Any, index: Tensor) -> Tensor:
    own.last = x_j.mean()
    return own.lin(x_j)


def raises(own: Own, x_i: Any, x_j: Tensor, attr: Any, index: Tensor) -> Tensor:
    raise ValueError("a message of a user")


def place_in_row(index: Tensor) -> Tensor:
    """Return whether an edge is the first of its row."""
    return torch.cat([index.new_ones(1), (index[1:] != index[:-1]).long()]).double().unsqueeze(1)


def logs(own: Own, x_i: Any, x_j: Tensor, attr: Any, index: Tensor) -> Tensor:
    own.log.append(len(x_j))
    return own.lin(x_j)


FAKE = torch.rand(4, requires_grad=True, dtype=torch.float64)
REFUSED: dict[str, tuple[Any, dict[str, Any]]] = {
    "writes a buffer": (lambda own, i, j, a, index: own.norm(own.lin(j)), {}),
    "depend on edges of other destinations": (lambda own, i, j, a, index: own.lin(j) - own.lin(j).mean(0), {}),
    "edges of other destinations": (lambda own, i, j, a, index: own.lin(j) * own.table[index], {}),
    "depend on edges of other": (lambda own, i, j, a, index: own.lin(j) + own.zero * own.lin(j).mean(), {}),
    "writes last": (remembers, {}),
    "writes log": (logs, {}),
    "depends on the order of its edges": (lambda own, i, j, a, index: own.lin(j) * place_in_row(index), {}),
    "draws random numbers": (lambda own, i, j, a, index: own.lin(j) + torch.rand(4).double(), {}),
    "no argument or parameter": (lambda own, i, j, a, index: own.lin(j) * FAKE, {}),
    "computed from parameters before": (lambda own, i, j, a, index: own.lin(j) * (own.table * 2)[0] * OLD, {}),
    "LSTMAggregation may look": (gated, {"aggr": "lstm", "aggr_kwargs": {"in_channels": 4, "out_channels": 4}}),
    "raised ValueError": (raises, {}),
}
OLD = FAKE.exp()


@pytest.mark.usefixtures("always", "short")
@pytest.mark.parametrize("reason", REFUSED)
def test_what_a_chunk_would_compute_otherwise_is_left_to_pyg(reason: str) -> None:
    compute, options = REFUSED[reason]
    edge_index = graphs.zoo()["power law"][0]
    edge_index = edge_index[:, edge_index[1].argsort(stable=True)]  # as an LSTM asks for
    g = layers.given(edge_index, 60)
    torch.manual_seed(0)
    own = Own(compute, **options).double()
    with gnnbench.patched(BACKEND):
        state = copy.deepcopy(own.state_dict())
        if reason == "raised ValueError":
            with pytest.raises(ValueError, match="a message of a user"):
                own(g.x, g.edge_index)
        else:
            torch.manual_seed(1)
            found = own(g.x, g.edge_index)
            now = own.state_dict()
            own.load_state_dict(state)
            torch.manual_seed(1)
            with gnnbench.unpatched():
                torch.testing.assert_close(found, own(g.x, g.edge_index), rtol=0, atol=0)
            torch.testing.assert_close(dict(now), dict(own.state_dict()), rtol=0, atol=0)
    status = gnnbench.patch_status()
    assert any(reason in why for _, why in status.declined), status
    assert not status.accelerated


@pytest.mark.usefixtures("always", "short", "unfused")
def test_an_attribute_that_comes_to_need_a_gradient_gets_it() -> None:
    """Even one that another thread computed, whose functions autograd counts apart."""
    g = layers.given(graphs.zoo()["power law"][0], 60)
    own: Any = Own(lambda own, i, j, a, index: own.lin(j) * own.scale).double()
    own.scale = torch.ones(4, dtype=torch.float64)

    def compute() -> None:
        for _ in range(10_000):
            own.scale = own.lin.bias.exp()

    with gnnbench.patched(BACKEND):
        own(g.x, g.edge_index)
        assert gnnbench.patch_status().accelerated == {"Own": 1}
        own.scale.requires_grad_()
        assert torch.autograd.grad(own(g.x, g.edge_index).sum(), own.scale)
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()
        (found,) = torch.autograd.grad(own(g.x, g.edge_index).sum(), own.lin.bias, retain_graph=True)
    assert gnnbench.patch_status().accelerated == {"Own": 1}
    torch.testing.assert_close(found, torch.autograd.grad(own(g.x, g.edge_index).sum(), own.lin.bias)[0])


@pytest.mark.usefixtures("always", "short", "unfused")
def test_second_derivatives_and_inference() -> None:
    g = layers.given(graphs.SMALL["knot"][0], 6)
    torch.manual_seed(0)
    own = Own(gated).double()
    attr = g.attr.detach()
    with gnnbench.patched(BACKEND):
        assert torch.autograd.gradgradcheck(lambda x: own(x, g.edge_index, attr), g.x)
        with torch.inference_mode():
            found = own(g.x, g.edge_index, attr)
    torch.testing.assert_close(found, own(g.x, g.edge_index, attr))
    assert gnnbench.patch_status().ways == {"Own": "streamed"}, gnnbench.patch_status()


@pytest.mark.usefixtures("always", "short", "unfused")
@pytest.mark.parametrize("name", ["RGCNConv", "ResGatedGraphConv", "SGConv", "GINEConv"])
@pytest.mark.parametrize("kind", ["no nodes", "negated", "strided", "bfloat16"])
def test_features_of_any_memory(name: str, kind: str) -> None:
    nodes = 0 if kind == "no nodes" else 20
    edge_index = torch.arange(nodes).repeat(2, 3)
    x = torch.randn(2 * nodes, 4)[::2] if kind == "strided" else torch.randn(nodes, 4)
    x = (torch._neg_view(x) if kind == "negated" else x).requires_grad_()
    x = x.detach().bfloat16().requires_grad_() if kind == "bfloat16" else x
    edge_attr, edge_type = torch.randn(3 * nodes, 4, dtype=x.dtype), torch.arange(3 * nodes) % 2
    more = {"RGCNConv": (edge_type,), "GINEConv": (edge_attr,)}.get(name, ())
    options = {"RGCNConv": (4, 4, 2), "GINEConv": (nn.Linear(4, 4),)}.get(name, (4, 4))
    conv: Any = getattr(pyg, name)(*options).to(x.dtype)

    def run() -> list[Tensor]:
        out = conv(x, edge_index, *more)
        return [out, *torch.autograd.grad(out.square().sum(), [x, *conv.parameters()])]

    expected = run()
    with gnnbench.patched(BACKEND):
        found = run()
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("always", "short", "unfused")
def test_dropout_drops_the_same_in_the_backward() -> None:
    """Where x is one everywhere and messages are dropped alone, the gradient of the sum tells what was kept."""
    torch.manual_seed(0)
    own = Own(lambda own, i, j, a, index: nn.functional.dropout(j, 0.5))
    edge_index = graphs.zoo()["power law"][0]
    x = torch.ones(60, layers.F, requires_grad=True)
    with gnnbench.patched(BACKEND):
        out = own(x, edge_index)
        (grad,) = torch.autograd.grad(out.sum(), x)
    assert gnnbench.patch_status().accelerated == {"Own": 1}
    torch.testing.assert_close(grad.sum(0), out.sum(0))
    assert 0.4 < float(out.detach().sum()) / (2 * 900 * layers.F) < 0.6


@pytest.mark.usefixtures("always", "short", "unfused")
def test_another_thread_may_run_what_a_rehearsal_refuses() -> None:
    g = layers.given(graphs.zoo()["power law"][0], 60)
    raised: list[BaseException] = []

    def normalise(own: Own) -> None:
        try:
            own.norm(torch.rand(3, 4).double())
        except UnsupportedOp as error:
            raised.append(error)

    def compute(own: Own, i: Any, j: Tensor, a: Any, index: Tensor) -> Tensor:
        thread = threading.Thread(target=normalise, args=(own,))
        thread.start()
        thread.join()
        return own.lin(j)

    with gnnbench.patched(BACKEND):
        Own(compute).double()(g.x, g.edge_index)
    assert not raised


@pytest.mark.usefixtures("always", "short", "unfused")
def test_autocast_computes_in_the_types_of_pyg() -> None:
    g = layers.given(graphs.zoo()["power law"][0], 60)
    x = g.x.detach().float().requires_grad_()
    torch.manual_seed(0)
    own = Own(lambda own, i, j, a, index: own.lin(j) * own.lin(i).sigmoid())

    def run() -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            out = own(x, g.edge_index)
        return [out, *torch.autograd.grad(out.float().square().sum(), [x, *own.lin.parameters()])]

    expected = run()
    with gnnbench.patched(BACKEND):
        found = run()
    assert [each.dtype for each in found] == [each.dtype for each in expected]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=5e-2, atol=5e-2 * float(theirs.abs().max()))
    assert gnnbench.patch_status().ways == {"Own": "streamed"}, gnnbench.patch_status()
