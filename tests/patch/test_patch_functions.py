"""`softmax`, `spmm` and `gcn_norm` of PyG, patched against unpatched: called by programs and by layers."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn.conv.supergat_conv as holder
from torch import Tensor
from torch_geometric import nn as pyg
from torch_geometric import utils
from torch_geometric.data import Data
from torch_geometric.nn.aggr import AttentionalAggregation, SoftmaxAggregation
from torch_geometric.nn.conv import sg_conv
from torch_geometric.transforms import GCNNorm

import gnnbench
from gnnbench.errors import UnsupportedOp
from tests.patch.test_patch_convs import rand
from tests.support import graphs
from tests.support.dropin import BACKEND

SOFTMAX = utils.softmax


def outcome(run: Callable[[], Tensor], *inputs: Tensor) -> list[Tensor] | type[Exception]:
    """A result and the gradients of inputs, or the type of the error."""
    try:
        out = run()
    except Exception as error:
        return type(error)
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape)
    return [out, *torch.autograd.grad((out * weight).sum(), inputs)]


def check(run: Callable[[], Tensor], *inputs: Tensor, ran: str | None, names: list[str] | None = None) -> None:
    """Compare patched with unpatched; `ran` ran accelerated, or nothing did."""
    expected = outcome(run, *inputs)
    with gnnbench.patched(BACKEND, names=names):
        found = outcome(run, *inputs)
    if isinstance(expected, type):
        assert found is expected
    else:
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert set(gnnbench.patch_status().accelerated) == ({ran} if ran else set()), gnnbench.patch_status()


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3)])
@pytest.mark.parametrize("form", ["index", "sorted", "ptr", "both"])
@pytest.mark.parametrize("graph", graphs.NAMES)
def test_softmax(graph: str, form: str, shape: tuple[int, ...]) -> None:
    edge_index, nodes, _ = graphs.zoo()[graph]
    index = edge_index[1] if form == "index" else edge_index[1].sort()[0]
    src = rand(index.numel(), *shape)
    ptr = torch._convert_indices_from_coo_to_csr(index, nodes) if form in ("ptr", "both") else None
    given = None if form == "ptr" else index
    check(lambda: utils.softmax(src, given, ptr, nodes), src, ran="softmax")
    check(lambda: utils.softmax(src, given, ptr=ptr).mul_(3).relu_(), src, ran="softmax")


@pytest.mark.usefixtures("always")
def test_softmax_of_extreme_scores() -> None:
    inf = torch.inf
    src = torch.tensor([[1e30, -inf, 700.0], [-1e30, 0.0, -800.0], [-inf, -inf, inf], [2.0, torch.nan, 1.0]])
    src = src.double().requires_grad_()
    for index in (torch.tensor([0, 0, 1, 2]), torch.tensor([2, 0, 2, 0]), torch.tensor([1, 1, 1, 1])):
        expected = utils.softmax(src, index)
        with gnnbench.patched(BACKEND):
            torch.testing.assert_close(utils.softmax(src, index), expected, equal_nan=True)
    assert gnnbench.patch_status().accelerated == {"softmax": 3}


INDEX = torch.tensor([0, 2, 2, 1])
CASES: dict[str, Callable[[Tensor], Any]] = {
    "another dimension": lambda src: utils.softmax(src, torch.tensor([0, 0, 1]), dim=1),
    "the first by a negative number": lambda src: utils.softmax(src, INDEX, dim=-2),
    "no groups": lambda src: utils.softmax(src),
    "index out of range": lambda src: utils.softmax(src, INDEX, num_nodes=2),
    "negative index": lambda src: utils.softmax(src, INDEX - 1, num_nodes=3),
    "short index": lambda src: utils.softmax(src, INDEX[:3]),
    "index of 32 bits": lambda src: utils.softmax(src, INDEX.int()),
    "falling pointers": lambda src: utils.softmax(src, ptr=torch.tensor([0, 3, 2, 4])),
    "short pointers": lambda src: utils.softmax(src, ptr=torch.tensor([0, 3])),
    "unknown argument": lambda src: utils.softmax(src, INDEX, nodes=3),
    "too many arguments": lambda src: utils.softmax(src, INDEX, None, 3, 0, 1),
    "not a tensor": lambda src: utils.softmax([1.0], INDEX),
}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("case", CASES)
def test_what_softmax_does_not_cover_is_pygs(case: str) -> None:
    src = rand(4, 3)
    exact = case == "the first by a negative number"
    check(lambda: CASES[case](src), src, ran="softmax" if exact else None)


@pytest.mark.usefixtures("always")
def test_the_groups_of_a_view_are_found_by_what_it_is_a_view_of() -> None:
    edge_index = graphs.zoo()["power law"][0].clone()
    src = rand(edge_index.size(1), 4)
    with gnnbench.patched(BACKEND):
        before = gnnbench.patch_status()
        for _ in range(3):
            utils.softmax(src, edge_index[1], num_nodes=60)
            utils.softmax(src, edge_index[0], num_nodes=60)
        after = gnnbench.patch_status()
        assert after.graphs_built - before.graphs_built == 2
        assert after.graphs_found - before.graphs_found == 4
        edge_index[1, 3] = 7
        expected = SOFTMAX(src, edge_index[1], num_nodes=60)
        torch.testing.assert_close(utils.softmax(src, edge_index[1], num_nodes=60), expected)
        for start in range(100):  # batches cut out of one tensor do not pile up
            utils.softmax(src[start:], edge_index[1, start:], num_nodes=60)
        assert gnnbench.patch_status().graphs < 20


LAYOUTS = ["to_sparse_coo", "to_sparse_csr", "to_sparse_csc"]


@pytest.mark.filterwarnings("ignore:Converting sparse tensor", "ignore:Sparse")
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("reduce", ["sum", "add", "mean", "min", "max", "mul"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("graph", ["isolated nodes", "hub", "wide", "tall", "power law"])
def test_spmm(graph: str, layout: str, reduce: str) -> None:
    edge_index, rows, cols = graphs.zoo()[graph]
    edge_index = utils.coalesce(edge_index)
    values = rand(edge_index.size(1), seed=2).detach()
    matrix = torch.sparse_coo_tensor(edge_index.flip(0), values, (rows, cols)).coalesce()
    matrix, x = getattr(matrix, layout)(), rand(cols, 5)
    check(lambda: utils.spmm(matrix, x, reduce), x, ran=None if reduce == "mul" else "spmm")


@pytest.mark.usefixtures("always")
def test_what_spmm_does_not_cover_is_pygs() -> None:
    edge_index, nodes, _ = graphs.zoo()["symmetric"]
    matrix = torch.sparse_coo_tensor(edge_index, torch.ones(80, dtype=torch.float64), (nodes, nodes))
    x = rand(nodes, 3)
    csr = matrix.coalesce().to_sparse_csr()
    trained = csr.clone().requires_grad_()
    check(lambda: utils.spmm(csr, x[:-1]), x, ran=None)
    check(lambda: utils.spmm(csr, x.float()), x, ran=None)
    check(lambda: utils.spmm(csr.to_dense(), x), x, ran=None)
    check(lambda: utils.spmm(trained, x), x, ran=None)
    with pytest.warns(UserWarning, match="Converting sparse tensor"):
        check(lambda: utils.spmm(matrix, x), x, ran=None)  # not coalesced


class Own(pyg.MessagePassing):
    """A user's attention, whose module holds `softmax` by name."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor, ptr: Any, size_i: int | None) -> Tensor:
        return x_j * softmax(x_i * x_j, index, ptr, size_i)


softmax = utils.softmax
WHO: dict[str, Callable[[], Any]] = {
    "a user's conv": Own,
    "general": lambda: pyg.GeneralConv(8, 8, attention=True, heads=4, attention_type="dot_product"),
    "supergat": lambda: pyg.SuperGATConv(8, 8, heads=4, add_self_loops=False).eval(),
    "point transformer": lambda: PointTransformer(),
    "gat with a hook": lambda: hooked(pyg.GATConv(8, 8, heads=4)),
    "softmax aggregation": lambda: Learned(8, 8, aggr=SoftmaxAggregation(learn=True)),
    "attentional aggregation": lambda: Pooling(),
}


class Learned(pyg.SAGEConv):
    """PyG compiles `propagate` once for a class, so that this aggregation needs one of its own."""


class PointTransformer(pyg.PointTransformerConv):
    def __init__(self) -> None:
        super().__init__(8, 8, add_self_loops=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, x[:, :3], edge_index)


class Pooling(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.aggr = AttentionalAggregation(torch.nn.Linear(8, 1))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.aggr(x[edge_index[0]], edge_index[1], dim_size=x.size(0))


def hooked(conv: pyg.GATConv) -> pyg.GATConv:
    conv.register_message_forward_hook(lambda module, inputs, out: 2 * out)
    return conv


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("who", WHO)
def test_convs_without_a_kernel_gain(who: str) -> None:
    edge_index, nodes, _ = graphs.zoo()["hub"]
    torch.manual_seed(0)
    module, x = WHO[who]().double(), rand(nodes, 8)
    check(lambda: module(x, edge_index), x, *module.parameters(), ran="softmax", names=["softmax"])


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("layer", [pyg.APPNP(3, 0.1), pyg.SGConv(8, 4, K=2), pyg.TAGConv(8, 4)], ids=str)
def test_propagation_over_a_sparse_matrix_gains(layer: torch.nn.Module) -> None:
    edge_index, nodes, _ = graphs.zoo()["symmetric"]
    edge_index = utils.remove_self_loops(utils.coalesce(edge_index))[0]
    ones = torch.ones(edge_index.size(1), dtype=torch.float64)
    matrix = torch.sparse_coo_tensor(edge_index.flip(0), ones, (nodes, nodes)).coalesce().to_sparse_csr()
    x = rand(nodes, 8)
    check(lambda: layer.double()(x, matrix), x, ran="spmm")


def test_small_and_narrow_ones_are_left_to_pyg() -> None:
    index = torch.randint(50, (2000,), generator=torch.Generator().manual_seed(0))
    with gnnbench.patched(BACKEND):
        for width, rows in ((1, 2000), (8, 20)):
            for _ in range(9):
                utils.softmax(torch.randn(rows, width), index[:rows], num_nodes=50)
        assert gnnbench.patch_status().accelerated == {}
        for _ in range(20):
            utils.softmax(torch.randn(2000, 8), index, num_nodes=50)
    assert gnnbench.patch_status().accelerated["softmax"] > 4
    with gnnbench.patched(BACKEND, strict=True):
        before = gnnbench.patch_status().accelerated["softmax"]
        utils.softmax(torch.randn(20, 1), index[:20])
        assert gnnbench.patch_status().accelerated["softmax"] == before + 1
        with pytest.raises(UnsupportedOp, match="softmax with strict=True"):
            utils.softmax(torch.randn(1, 20), index[:20], dim=1)


def test_every_module_that_holds_a_function_is_patched_and_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    early, late = types.ModuleType("early"), types.ModuleType("late")
    early.softmax, early.spmm = utils.softmax, torch.relu
    monkeypatch.setitem(sys.modules, "early", early)
    gnnbench.patch_pyg(BACKEND)
    ours = utils.softmax
    assert ours is not SOFTMAX
    assert ours is early.softmax is holder.softmax
    assert early.spmm is torch.relu
    late.softmax = utils.softmax
    monkeypatch.setitem(sys.modules, "late", late)
    with gnnbench.patched(BACKEND, names=["GCNConv"]):
        assert early.softmax is late.softmax is SOFTMAX
    assert early.softmax is late.softmax is ours
    gnnbench.unpatch_pyg()
    assert early.softmax is late.softmax is utils.softmax is SOFTMAX
    index = torch.arange(4)
    assert torch.equal(ours(torch.randn(4), index), torch.ones(4))  # who kept it calls PyG
    assert gnnbench.patch_status().accelerated == {}


def _scripted(src: Tensor, index: Tensor) -> Tensor:
    return torch.jit.script(utils.softmax)(src, index, None, 4)


def _compiled(src: Tensor, index: Tensor) -> Tensor:
    torch._dynamo.reset()
    return torch.compile(lambda src, index: utils.softmax(src, index, None, 4), backend="eager", fullgraph=True)(
        src, index
    )


@pytest.mark.usefixtures("always")
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
@pytest.mark.parametrize("run", [_scripted, _compiled], ids=lambda run: run.__name__)
def test_compilers_see_pygs_own_code(run: Callable[[Tensor, Tensor], Tensor]) -> None:
    src, index = rand(4, 3).detach(), INDEX
    with gnnbench.patched(BACKEND):
        found = run(src, index)
    assert torch.equal(found, SOFTMAX(src, index, None, 4))
    assert gnnbench.patch_status().accelerated == {}


def test_norms_are_kept_while_edges_and_weights_are() -> None:
    torch.manual_seed(0)
    edge_index, weight = torch.randint(40, (2, 300)), torch.rand(300)
    layers, x = [pyg.SGConv(8, 8, K=2), pyg.SSGConv(8, 8, 0.1), pyg.TAGConv(8, 8)], torch.randn(40, 8)

    def check_found(times: int, weight: Tensor | None = None) -> None:
        """The layers compute what PyG computes, twice, and find so many of the norms they ask for."""
        expected = [layer(x, edge_index, weight) for layer in layers]
        before = gnnbench.patch_status().accelerated.get("gcn_norm", 0)
        with gnnbench.patched(BACKEND, names=["gcn_norm"]), torch.inference_mode():
            found = [layer(x, edge_index, weight) for layer in [*layers, *layers]]
        torch.testing.assert_close(found, expected * 2, rtol=0, atol=0)
        assert gnnbench.patch_status().accelerated.get("gcn_norm", 0) - before == times

    check_found(4)  # all but one with loops, and TAGConv's, without
    check_found(6)
    check_found(4, weight)
    check_found(6, weight)
    check_found(4, weight.clone())
    edge_index[:, 0] = torch.tensor([1, 2])
    check_found(4)
    weight[0] = 3
    check_found(4, weight)
    check_found(0, weight.clone().requires_grad_())
    kept = gnnbench.patch_status().graph_bytes
    assert kept > 0
    with gnnbench.patched(BACKEND):
        layers[0](x, edge_index)[0].sum().backward()  # a norm made without gradients
        _, norm = sg_conv.gcn_norm(edge_index, None, 40, False, True, "source_to_target", x.dtype)
        norm.mul_(2)  # as a program that got hold of it might
        torch.jit.script(layers[0])
    torch.jit.script(layers[0])
    with gnnbench.patched(BACKEND):
        torch.jit.script(layers[0])
        with gnnbench.unpatched():
            torch.jit.script(layers[0])
        torch.jit.script(layers[2])
        assert float(GCNNorm()(Data(x=x, edge_index=edge_index)).edge_weight.max()) <= 1
    check_found(5)
    others = [torch.randint(40, (2, 300)) for _ in range(20)]
    with gnnbench.patched(BACKEND):
        for each in others:
            layers[0](x, each)
    assert gnnbench.patch_status().graph_bytes < 4 * kept
    check_found(4)  # forgotten, as the others came last
