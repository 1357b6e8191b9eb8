"""Gated recurrent units, and perceptrons of few inputs: beside torch's in float64, and on any threads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.backends.isplib import layers as kernel
from gnnbench.ops.dense import gru, perceptron
from gnnbench.ops.kernels import Kernels
from tests.convs.test_linears import TILES, lower_limits
from tests.ops import test_grad
from tests.support.kernels import KERNELS, LEVELS, leaf, over_dtypes, over_kernels

SHAPES = [(0, 2, 3), (1, 1, 1), (7, 3, 8), (90, 5, 41), (300, 32, 16), (129, 9, 24)]
over_units = pytest.mark.parametrize("kernels", [*KERNELS.values(), *(isplib.IsplibKernels(isa=k) for k in TILES)])


@pytest.fixture(autouse=True)
def small_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels take every unit but empty ones, in several chunks."""
    lower_limits(monkeypatch)
    monkeypatch.setattr(kernel, "GRU_CHUNKS", (256, 40))


def cell(rows: int, ins: int, width: int, dtype: torch.dtype, bias: bool = True) -> list[Tensor]:
    weights = leaf(3 * width, ins, dtype=dtype), leaf(3 * width, width, dtype=dtype)
    biases = [leaf(3 * width, dtype=dtype) for _ in weights] * bias
    return [leaf(rows, ins, dtype=dtype), leaf(rows, width, dtype=dtype), *weights, *biases]


@over_units
@over_dtypes
def test_states_and_gradients(kernels: Kernels, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        for bias in (True, False):
            test_grad.check(lambda *given: gru(kernels, *given), torch.gru_cell, *cell(*shape, dtype, bias))
    x, state, *weights = cell(90, 5, 16, dtype)
    strided = gru(kernels, x.detach().t().contiguous().t(), state, *weights)
    assert torch.equal(strided, gru(kernels, x, state, *weights))
    with torch.no_grad():
        assert torch.equal(strided, gru(kernels, x, state, *weights))
    given = cell(5, 2, 3, torch.float64)
    assert torch.autograd.gradcheck(lambda *given: gru(kernels, *given), given)
    assert torch.autograd.gradgradcheck(lambda *given: gru(kernels, *given), given)


@pytest.mark.parametrize("level", [*LEVELS, *TILES])
def test_states_do_not_depend_on_threads_and_keep_what_is_not_a_number_to_its_row(level: int) -> None:
    x, state, *weights = (each.detach() for each in cell(900, 7, 24, torch.float32))
    x[70, 3] = torch.nan
    results = []
    for threads in (1, 2, 5):
        kernels = isplib.IsplibKernels(isa=level, threads=threads)
        out, kept = kernels.gru(x, state, tuple(weights[:2]), tuple(weights[2:]), keep=True)
        grads = kernels.gru_backward(out.nan_to_num(0.5), kept, x, state, tuple(weights[:2]))
        results.append([out, kept, *(each for pair in grads for each in pair)])
    for found in zip(*results, strict=True):
        assert all(torch.equal(each.nan_to_num(9.5), found[0].nan_to_num(9.5)) for each in found)
    assert results[0][0].isnan().any(1).nonzero().tolist() == [[70]]


def plain_perceptron(x: Tensor, weights: Tensor) -> Tensor:
    return torch.relu(x @ weights[:-2] + weights[-2]) @ weights[-1]


@over_kernels
@over_dtypes
def test_perceptrons_and_gradients(kernels: Kernels, dtype: torch.dtype) -> None:
    for rows, ins, width in (*SHAPES, (1100, 16, 70), (600, 17, 5)):
        x, weights = leaf(rows, ins, dtype=dtype), leaf(ins + 2, width, dtype=dtype)
        test_grad.check(lambda x, weights: perceptron(kernels, x, weights), plain_perceptron, x, weights)
    given = leaf(5, 2), leaf(4, 3)
    assert torch.autograd.gradcheck(lambda *given: perceptron(kernels, *given), given)
    assert torch.autograd.gradgradcheck(lambda *given: perceptron(kernels, *given), given)


@pytest.mark.parametrize("level", LEVELS)
def test_perceptrons_do_not_depend_on_threads_and_keep_what_is_not_a_number(level: int) -> None:
    x, weights, grad_out = torch.randn(3000, 3), torch.randn(5, 20), torch.randn(3000)
    x[70, 1] = torch.nan
    results = []
    for threads in (1, 2, 5):
        kernels = isplib.IsplibKernels(isa=level, threads=threads)
        results.append([kernels.perceptron(x, weights), *kernels.perceptron_backward(grad_out, x, weights)])
    for found in zip(*results, strict=True):
        assert all(torch.equal(each.nan_to_num(9.5), found[0].nan_to_num(9.5)) for each in found)
    assert results[0][0].isnan().nonzero().tolist() == [[70]]
