"""The drop-in under torch.autocast: what PyG computes under the same, within the precision of the lower type."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric import utils

import gnnbench
from tests.convs.test_autocast import CONVS, LOW, error
from tests.support import graphs
from tests.support.dropin import BACKEND

BF16 = LOW[torch.bfloat16]
MORE: dict[str, Callable[[int], nn.Module]] = {
    "gcn without bias": lambda width: pyg.GCNConv(width, 4, bias=False),
    "sage without root": lambda width: pyg.SAGEConv(width, 4, root_weight=False),
    "graph conv without bias": lambda width: pyg.GraphConv(width, 4, bias=False),
}
WEIGHTED: dict[str, tuple[Callable[[int], nn.Module], str]] = {
    "gcn": (lambda width: pyg.GCNConv(width, 4), "edge_weight"),
    "graph conv": (lambda width: pyg.GraphConv(width, 4), "edge_weight"),
    "gine": (lambda width: pyg.GINEConv(nn.Linear(width, 4), edge_dim=3), "edge_attr"),
    "gat": (lambda width: pyg.GATConv(width, 4, heads=2, edge_dim=3), "edge_attr"),
    "gatv2": (lambda width: pyg.GATv2Conv(width, 4, heads=2, edge_dim=3), "edge_attr"),
    "transformer": (lambda width: pyg.TransformerConv(width, 4, heads=2, edge_dim=3), "edge_attr"),
}
EDGES, NODES = graphs.zoo()["symmetric"][0], 15


def outcome(layers: nn.ModuleList, given: dict[str, Tensor], within: bool) -> list[Tensor]:
    """The output of one layer after the other, and all gradients, of a backward within autocast or after it."""
    layers.zero_grad()
    x = torch.randn(NODES, 9, generator=torch.Generator().manual_seed(2)).requires_grad_()
    given = {name: tensor.clone().requires_grad_() for name, tensor in given.items()}
    with torch.autocast("cpu", torch.bfloat16):
        out = x
        for layer in layers:
            out = layer(out, EDGES, **given).tanh()
        loss = out.float().square().sum()
        if within:
            loss.backward()
    if not within:
        loss.backward()
    inputs = [x, *given.values(), *layers.parameters()]
    return [out.detach(), *(tensor.grad for tensor in inputs if tensor.grad is not None)]


def check(make: Callable[[int], Any], given: dict[str, Tensor], within: bool) -> None:
    torch.manual_seed(1)
    first = make(9)
    width = first(torch.zeros(1, 9), torch.zeros(2, 0).long(), **{k: v[:0] for k, v in given.items()}).size(1)
    layers = nn.ModuleList([first, make(width)])
    theirs = outcome(layers, given, within)
    with gnnbench.patched(BACKEND, strict=True):
        ours = outcome(layers, given, within)
    status = gnnbench.patch_status()
    assert status.accelerated == {type(first).__name__: 2}
    assert [tensor.dtype for tensor in ours] == [tensor.dtype for tensor in theirs]
    floor = 0.05 * max(float(tensor.norm()) for tensor in theirs)  # some gradients hold nothing but rounding
    for mine, pygs in zip(ours, theirs, strict=True):
        assert error(mine, pygs, floor) < BF16


over_backwards = pytest.mark.parametrize("within", [False, True], ids=["backward after it", "backward within"])


@over_backwards
@pytest.mark.parametrize("name", [*CONVS, *MORE])
def test_convs_follow_it(name: str, within: bool) -> None:
    check({**CONVS, **MORE}[name], {}, within)


@over_backwards
@pytest.mark.parametrize("name", WEIGHTED)
def test_beside_edges_of_another_type(name: str, within: bool) -> None:
    make, option = WEIGHTED[name]
    shape = (EDGES.size(1),) if option == "edge_weight" else (EDGES.size(1), 3)
    check(make, {option: torch.rand(shape, generator=torch.Generator().manual_seed(3)) + 0.1}, within)


def adjacency() -> Tensor:
    return torch.sparse_coo_tensor(EDGES, torch.ones(EDGES.size(1)), (NODES, NODES)).coalesce().to_sparse_csr()


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda src: utils.softmax(src, EDGES[1], num_nodes=NODES),
    "spmm": lambda src: utils.spmm(adjacency(), src[:NODES], "mean"),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    ("name", "dtype"), [("softmax", torch.float32), ("softmax", torch.bfloat16), ("spmm", torch.float32)]
)
def test_functions_follow_it(name: str, dtype: torch.dtype) -> None:
    theirs, ours = (of_function(name, dtype, patched=patched) for patched in (False, True))
    for mine, pygs in zip(ours, theirs, strict=True):
        assert mine.dtype == pygs.dtype
        assert error(mine, pygs, 1e-3) < BF16


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_product_that_pytorch_lacks_in_bfloat16_runs_in_float32() -> None:
    with pytest.raises(RuntimeError, match="Float"):
        of_function("spmm", torch.bfloat16, patched=False)
    expected = of_function("spmm", torch.float32, patched=False)
    found = of_function("spmm", torch.bfloat16, patched=True)
    assert found[0].dtype == torch.float32
    assert all(error(mine, pygs, 1e-3) < BF16 for mine, pygs in zip(found, expected, strict=True))


def of_function(name: str, dtype: torch.dtype, *, patched: bool) -> list[Tensor]:
    """The result of a function under autocast, and its gradient."""
    src = torch.randn(EDGES.size(1), 4, generator=torch.Generator().manual_seed(4)).to(dtype).requires_grad_()
    with gnnbench.patched(BACKEND, strict=True) if patched else nullcontext():
        with torch.autocast("cpu", torch.bfloat16):
            out = FUNCTIONS[name](src)
        assert gnnbench.patch_status().accelerated == ({name: 1} if patched else {})
    return [out.detach(), *torch.autograd.grad(out.float().square().sum(), src)]
