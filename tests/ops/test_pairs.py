"""Functions of pairs equal those of gathered rows, of which they keep none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gnnbench.backends.isplib import IsplibKernels
from gnnbench.errors import GraphError, UnsupportedOp
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.pairs import pair_dot, pair_map
from tests.support import gpu, graphs
from tests.support.kernels import KERNELS, OURS, check, leaf, normal, over_dtypes, over_pairs

ON = [name for name in graphs.NAMES if name not in ("no nodes", "no sources")]


def ends(pairs: Tensor, x_src: Tensor, x_dst: Tensor) -> tuple[Tensor, Tensor]:
    return x_src[pairs[0]], x_dst[pairs[1]]


def dot(pairs: Tensor, x_src: Tensor, x_dst: Tensor) -> Tensor:
    source, destination = ends(pairs, x_src, x_dst)
    return (source * destination).sum(-1)


def compare(found: Tensor, truth: Tensor, *leaves: Tensor) -> None:
    """Values, and gradients that no pair has the same of."""
    check(found.detach(), truth.detach())
    grad = normal(*truth.shape, dtype=truth.dtype)
    gradients = torch.autograd.grad(found, leaves, grad.to(found))
    for gradient, true in zip(gradients, torch.autograd.grad(truth, leaves, grad.to(truth)), strict=True):
        check(gradient, true)


@over_dtypes
@over_pairs("width", [1, 5, 41, 256], on=ON)
def test_pair_dot(kernels: Kernels, graph_name: str, width: int, dtype: torch.dtype) -> None:
    pairs, rows, cols = graphs.zoo()[graph_name]
    x_src, x_dst = leaf(cols, width, dtype=dtype), leaf(rows, width, dtype=dtype)
    compare(pair_dot(kernels, x_src, x_dst, pairs), dot(pairs, x_src.double(), x_dst.double()), x_src, x_dst)


@gpu.needs_triton
def test_pair_dot_by_triton() -> None:
    pairs, rows, cols = graphs.zoo()["wide"]
    x_src, x_dst = (leaf(size, 20).to(gpu.DEVICE).detach().requires_grad_() for size in (cols, rows))
    pairs = pairs.to(gpu.DEVICE)
    compare(pair_dot(gpu.KERNELS, x_src, x_dst, pairs), dot(pairs, x_src, x_dst), x_src, x_dst)


def test_both_ends_may_be_of_one_matrix() -> None:
    pairs, rows, _ = graphs.zoo()["hub"]
    x = leaf(rows, 7)
    compare(pair_dot(OURS, x, x, pairs), dot(pairs, x, x), x)
    assert torch.autograd.gradgradcheck(lambda x: pair_dot(OURS, x, x, pairs[:, :20]), (x[:, :2],))


def decoder(dropout: float = 0.0) -> tuple[Callable[[Tensor, Tensor], Tensor], list[nn.Parameter]]:
    layers = nn.Sequential(nn.Linear(6, 9), nn.SiLU(), nn.Dropout(dropout), nn.Linear(9, 2)).double()
    return lambda source, destination: layers(source * destination), [*layers.parameters()]


@pytest.mark.parametrize("chunk_bytes", [1, 2000, 1 << 20], ids=["a row", "some rows", "all"])
@pytest.mark.parametrize("kernels", [KERNELS["torch"], OURS], ids=["torch", "ours"])
def test_pair_map(kernels: Kernels, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(kernels), "chunk_bytes", chunk_bytes)
    function, parameters = decoder()
    for name in ("hub", "wide"):
        pairs, rows, cols = graphs.zoo()[name]
        x_src, x_dst = leaf(cols, 6), leaf(rows, 6)
        found = pair_map(kernels, function, x_src, x_dst, pairs, parameters=parameters)
        compare(found, function(*ends(pairs, x_src, x_dst)), x_src, x_dst, *parameters)


def test_dropout_is_drawn_again_in_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(OURS), "chunk_bytes", 2000)
    pairs, rows, cols = graphs.zoo()["tall"]
    x_src, x_dst = leaf(cols, 6), leaf(rows, 6)
    function, parameters = decoder(0.5)
    out = pair_map(OURS, function, x_src, x_dst, pairs, parameters=parameters, draws=True)
    # Linear in the last layer's weight: out is what its gradient says.
    weight, bias = parameters[-2:]
    (grad,) = torch.autograd.grad(out.sum(), weight)
    check(((grad * weight).sum() + len(out) * bias.sum()).detach(), out.sum().detach())


def test_nothing_as_wide_as_features_is_kept_for_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(OURS), "chunk_bytes", 1 << 12)
    x, pairs = leaf(20, 64), graphs.zoo()["hub"][0] % 20
    largest = 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal largest
        largest = max(largest, tensor.numel())
        return tensor

    function: Any = lambda source, destination: (source * destination).sum(-1)  # noqa: E731
    for call in (pair_dot, partial(pair_map, function=function)):
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            call(kernels=OURS, x_src=x, x_dst=x, pairs=pairs)
    assert 0 < largest <= x.numel() < pairs.size(1) * x.size(1)


def test_pairs_are_sorted_once() -> None:
    kernels = IsplibKernels()
    x, pairs = normal(30, 4), graphs.zoo()["hub"][0].clone()
    before = [pair_dot(kernels, x, x, pairs) for _ in range(2)]
    assert torch.equal(*before)
    assert (kernels.pair_graphs.built, kernels.pair_graphs.found) == (1, 1)
    pairs[0, 0] = (pairs[0, 0] + 1) % 30
    check(pair_dot(kernels, x, x, pairs), dot(pairs, x, x))
    assert kernels.pair_graphs.built == 2


def test_bad_input_is_one_sentence() -> None:
    x, pairs = normal(5, 3), torch.tensor([[0, 5], [1, 2]])
    with pytest.raises(GraphError, match="source index 5 is outside the range of 0 to 4"):
        pair_dot(OURS, x, x, pairs)
    with pytest.raises(UnsupportedOp, match=r"features have shapes \[5, 3\] and \[5, 2\]"):
        pair_dot(OURS, x, x[:, :2], pairs)
