"""Try what only shows in large inputs: rows of thousands of edges, and tensors of more than 100,000 numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.backends.cuda import CudaKernels, _base
from gnnbench.backends.isplib import choices
from gnnbench.graph import Graph
from gnnbench.ops.attention import attention
from gnnbench.ops.edge import edge_softmax, fusedmm, sddmm
from gnnbench.ops.families import FAMILIES
from gnnbench.ops.kernels import Kernels, choice_key
from gnnbench.ops.spmm import spmm
from tests.support import graphs
from tests.support.gpu import needs_triton
from tests.support.kernels import over_dtypes, over_levels

LONG = 7000  # edges of a row
MANY = 800, 4, 32  # nodes, heads and channels
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-12}
# Inputs by their sizes: n destinations, m sources, e edges, h heads, c channels of each, f channels of all.
SIZES = {
    name: [" ".join(dims).lower().replace("d", "c") for dims in family.inputs.values()]
    for name, family in FAMILIES.items()
}


def attended(family: str, kernels: Kernels, graph: Graph, *inputs: Tensor) -> Tensor:
    return attention(kernels, graph, family, inputs)


OPS: dict[str, tuple[Callable[..., Tensor], list[str]]] = {
    **{reduce: (partial(spmm, reduce=reduce), ["m f"]) for reduce in ("sum", "mean", "min", "max")},
    **{f"weighted {reduce}": (partial(spmm, reduce=reduce), ["m f", "e"]) for reduce in ("sum", "mean", "max")},
    "sum of heads": (spmm, ["m h c", "e h"]),
    "sddmm": (sddmm, ["n f", "m f"]),
    "edge_softmax": (edge_softmax, ["e f"]),
    "fusedmm": (partial(fusedmm, edge_fn="tanh"), ["n h c", "m h c"]),
    **{name: (partial(attended, name), [*SIZES[name]]) for name in SIZES},
}
AGGREGATIONS = [name for name, (_, (first, *_)) in OPS.items() if first == "m f"]
over_ops = pytest.mark.parametrize("name", OPS)


def check(
    name: str, kernels: Kernels, graph: Graph, heads: int, channels: int, dtype: torch.dtype, backward: bool = True
) -> None:
    """Result and gradients, from inputs whose mean is not zero, so that long rows weigh as much as short ones."""
    op, inputs = OPS[name]
    nodes = {"n": graph.num_rows, "m": graph.num_cols, "e": graph.num_edges}
    sizes = {**nodes, "h": heads, "c": channels, "f": heads * channels}
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> Tensor:
        return ((torch.randn(*shape, generator=generator) + 0.5) * channels**-0.5).to(graph.device, dtype)

    tensors = [drawn(*(sizes[size] for size in each.split())).requires_grad_() for each in inputs]
    true = [tensor.detach().double().requires_grad_() for tensor in tensors]
    found, truth = op(kernels, graph, *tensors), op(Kernels(), graph, *true)
    gradients: tuple[Tensor, ...] = ()
    truths: tuple[Tensor, ...] = ()
    if backward:
        grad_out = drawn(*found.shape)
        gradients = torch.autograd.grad(found, tensors, grad_out)
        truths = torch.autograd.grad(truth, true, grad_out.double())
    longest = int(graph.degree.argmax())
    hub = slice(*graph.rowptr[longest : longest + 2].tolist())  # small weights beside those of short rows
    for one, other in zip((found.detach(), *gradients), (truth.detach(), *truths), strict=True):
        assert graphs.relative_error(one, other) < TOLERANCE[dtype]
        if len(one) == graph.num_edges:
            assert graphs.relative_error(one[hub], other[hub]) < TOLERANCE[dtype]


@over_dtypes
@over_ops
@over_levels
def test_isplib(level: int, name: str, dtype: torch.dtype) -> None:
    kernels = isplib.IsplibKernels(isa=level)
    graph = graphs.crowd(kernels, LONG, MANY[0])
    for on in (graph, graph.transpose):
        check(name, kernels, on, *MANY[1:], dtype)


@over_dtypes
@pytest.mark.parametrize("name", AGGREGATIONS)
@over_levels
def test_isplib_in_blocks(level: int, name: str, dtype: torch.dtype) -> None:
    """Two of them, the first of which has 4,480 edges of the long row."""
    kernels = isplib.IsplibKernels(isa=level)
    graph = graphs.crowd(kernels, LONG, MANY[0])
    for on in (graph, graph.transpose):
        for op in choices.TUNED:
            on.cache[choice_key(op, 128, dtype)] = {"algorithm": "blocked", "shift": 9}
    check(name, kernels, graph, *MANY[1:], dtype)
    assert any(len(plan.start) == 2 for key, plan in graph.cache.items() if key[0] == "blocks")


@needs_triton
@pytest.mark.parametrize("name", ["weighted sum", "mean", "max", "sddmm", "edge_softmax", "gat", "gatv2", "dot"])
def test_cuda(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either at a time, in few programs, for Triton's interpreter is slow."""
    monkeypatch.setattr(_base, "PROGRAMS", 4)
    kernels = CudaKernels()
    check(name, kernels, graphs.crowd(kernels, 4200, 8), 2, 1, torch.float64)
    if name != "edge_softmax":  # whose numbers are per edge
        check(name, kernels, graphs.crowd(kernels, 10, MANY[0]), *MANY[1:], torch.float32, backward=False)
