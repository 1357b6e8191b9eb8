"""torch.autocast over bound convs: what PyG computes under it, within the precision of the lower type."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from gnnbench import convs
from gnnbench.backends import isplib
from gnnbench.backends.cuda import CudaKernels
from gnnbench.graph import Graph
from gnnbench.ops import edge
from gnnbench.ops.attention import attention
from gnnbench.ops.edge import fusedmm
from gnnbench.ops.kernels import Kernels, choice_key
from gnnbench.ops.spmm import spmm
from tests.support import graphs
from tests.support.gpu import DEVICE, MISSING

CONVS = {
    "gcn": lambda width: pyg.GCNConv(width, 4),
    "gcn, narrower first": lambda width: pyg.GCNConv(width, 12),
    "sage": lambda width: pyg.SAGEConv(width, 4),
    "sage of maxima": lambda width: pyg.SAGEConv(width, 4, aggr="max"),
    "gin": lambda width: pyg.GINConv(
        nn.Sequential(nn.Linear(width, 4), nn.ReLU(), nn.Linear(4, 4)), train_eps=True
    ),
    "graph conv": lambda width: pyg.GraphConv(width, 4),
    "gat": lambda width: pyg.GATConv(width, 4, heads=2),
    "gatv2": lambda width: pyg.GATv2Conv(width, 4, heads=2),
    "transformer": lambda width: pyg.TransformerConv(width, 4, heads=2, beta=True),
    "agnn": lambda width: pyg.AGNNConv(),
}
LOW = {torch.bfloat16: 2e-2, torch.float16: 3e-3}
KERNELS = {
    **({} if DEVICE.type == "cuda" else {"torch": Kernels}),
    **({} if isplib.MISSING or DEVICE.type == "cuda" else {"isplib": isplib.IsplibKernels}),
    **({} if MISSING else {"cuda": CudaKernels}),
}
over_kernels = pytest.mark.parametrize("kernels", KERNELS)
CASES = [  # on a GPU's kernels, which may be interpreted, every conv in one of the types
    (name, dtype, kernels)
    for place, name in enumerate(CONVS)
    for kernels in KERNELS
    for dtype in ([*LOW][place % 2 :][:1] if kernels == "cuda" else LOW)
]


class Two(nn.Module):
    """The second conv is given what the first makes of float32: any type."""

    def __init__(self, name: str) -> None:
        super().__init__()
        first = CONVS[name](9)
        self.convs = nn.ModuleList(
            [first, CONVS[name](first(torch.zeros(1, 9), torch.zeros(2, 0).long()).size(1))]
        )

    def forward(self, x: Tensor, adj: object) -> Tensor:
        return self.convs[1](self.convs[0](x, adj).tanh(), adj)


def error(found: Tensor, truth: Tensor, floor: float) -> float:
    return float((found.double() - truth.double()).norm() / truth.double().norm().clamp(min=floor))


@pytest.mark.parametrize(("name", "dtype", "kernels"), CASES)
def test_convs_compute_what_pygs_do(name: str, dtype: torch.dtype, kernels: str) -> None:
    torch.manual_seed(1)
    vanilla = Two(name).to(DEVICE)
    bound = copy.deepcopy(vanilla)
    by = KERNELS[kernels]()
    convs.bind(bound, by, transform_first=True, fold_norm=True)
    edge_index = graphs.zoo()["symmetric"][0].to(DEVICE)
    on = Graph.from_edge_index(edge_index, 15, layout=by)
    x = torch.randn(15, 9).to(DEVICE)

    def outcome(model: nn.Module, adjacency: object, enabled: bool = True) -> list[Tensor]:
        model.zero_grad()
        with torch.autocast(DEVICE.type, dtype, enabled):
            out = model(x, adjacency)
        out.float().square().sum().backward()
        return [out.detach(), *(each.grad for each in model.parameters() if each.grad is not None)]

    found, theirs = outcome(bound, on), outcome(vanilla, edge_index)
    truth = outcome(vanilla, edge_index, enabled=False)
    assert len(found) == len(theirs)
    floor = 0.05 * max(float(tensor.norm()) for tensor in truth)  # some gradients hold nothing but rounding
    for ours, pygs, exact in zip(found, theirs, truth, strict=True):
        assert error(ours, pygs, floor) < LOW[dtype] + 2 * error(pygs, exact, floor)


OPS = {
    "spmm": lambda by, on, x, value: spmm(by, on, x, value[:, 0]),
    "max": lambda by, on, x, value: spmm(by, on, x[:, 0], value[:, 0], "max"),
    "sddmm": lambda by, on, x, value: edge.sddmm(by, on, x.float(), x),
    "edge_softmax": lambda by, on, x, value: edge.edge_softmax(by, on, value),
    "fusedmm": lambda by, on, x, value: fusedmm(by, on, x, x.float()),
    "attention": lambda by, on, x, value: attention(by, on, "gat", (*[x.float().sum(-1)] * 2, x)),
}


@over_kernels
@pytest.mark.parametrize("op", OPS)
def test_the_widest_type_holds(op: str, kernels: str) -> None:
    by = KERNELS[kernels]()
    on = Graph.from_edge_index(graphs.zoo()["symmetric"][0].to(DEVICE), 15, layout=by)
    x = torch.randn(15, 2, 4).to(DEVICE, torch.bfloat16).requires_grad_()
    value = torch.randn(on.num_edges, 2).to(DEVICE).requires_grad_()
    with torch.autocast(DEVICE.type, torch.bfloat16):
        out = OPS[op](by, on, x, value)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, OPS[op](by, on, x.float(), value))
    out.sum().backward()
    assert [each.grad.dtype for each in (x, value) if each.grad is not None] != []


@over_kernels
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("op", OPS)
def test_a_backward_from_within_autocast_computes_the_same(op: str, create_graph: bool, kernels: str) -> None:
    by = KERNELS[kernels]()
    on = Graph.from_edge_index(graphs.zoo()["wide"][0].to(DEVICE) % 6, 6, layout=by)
    on.transpose.cache[choice_key("spmm", 8, torch.float32)] = {"algorithm": "cusparse"}
    inputs = [torch.randn(size, 2, *rest).to(DEVICE).requires_grad_() for size, *rest in ((6, 4), (on.num_edges,))]
    out = OPS[op](by, on, *inputs)
    grad_out = torch.randn_like(out)

    def gradients() -> tuple[Tensor | None, ...]:
        return torch.autograd.grad(out, inputs, grad_out, True, create_graph, allow_unused=True)

    expected = gradients()
    with torch.autocast(DEVICE.type, torch.bfloat16):
        found = gradients()
    rounding = 1e-5 if create_graph and DEVICE.type == "cuda" else 0  # where torch adds in any order
    torch.testing.assert_close(found, expected, rtol=rounding, atol=rounding)


@over_kernels
def test_what_kernels_can_store_stays_narrow(kernels: str) -> None:
    by = KERNELS[kernels]()
    on = Graph.from_edge_index(graphs.zoo()["symmetric"][0].to(DEVICE), 15, layout=by)
    x = torch.randn(15, 4).to(DEVICE, torch.bfloat16)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        assert spmm(by, on, x).dtype == (torch.bfloat16 if kernels == "cuda" else torch.float32)
        assert spmm(by, on, x.double()).dtype == torch.float64
