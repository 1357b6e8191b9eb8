"""Batch norms with their ReLU: beside torch's in float64, and layers that someone replaced."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, ReLU, Sequential, SiLU

from gnnbench import convs
from gnnbench.backends import isplib
from gnnbench.ops.dense import batch_norm
from gnnbench.ops.kernels import Kernels
from tests.ops import test_grad
from tests.support import graphs
from tests.support.kernels import OURS, leaf, over_dtypes, over_kernels, over_levels

SHAPES = [(5, 1), (63, 16), (64, 3), (130, 41), (9001, 33)]  # around a block, and many of them


@over_kernels
@over_dtypes
@pytest.mark.parametrize("relu", [False, True])
def test_columns_are_normalised_over_the_batch(kernels: Kernels, dtype: torch.dtype, relu: bool) -> None:
    def plain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        var, mean = torch.var_mean(x, 0, correction=0)
        out = (x - mean) / (var + 1e-3).sqrt() * weight + bias
        return out.relu() if relu else out

    for rows, width in SHAPES:
        x = (leaf(rows, width, dtype=dtype).detach() + 3).requires_grad_()
        weight, bias = (leaf(width, dtype=dtype) for _ in range(2))
        test_grad.check(lambda *given: batch_norm(kernels, *given, 1e-3, relu)[0], plain, x, weight, bias)
        out, mean, var = batch_norm(kernels, x, weight, bias, 1e-3, relu)
        by_moments = kernels.normalise(*(each.detach() for each in (x, mean, var, weight, bias)), 1e-3, relu)
        assert torch.equal(by_moments, out)
        assert graphs.relative_error(mean, x.detach().double().mean(0)) < graphs.TOLERANCE[dtype]
        assert graphs.relative_error(var, x.detach().double().var(0, correction=0)) < graphs.TOLERANCE[dtype]


@over_levels
def test_results_do_not_depend_on_threads_and_keep_what_is_not_a_number(level: int) -> None:
    x, weight, bias = torch.randn(900, 70), torch.randn(70), torch.randn(70)
    x[7, 3] = torch.nan
    results = []
    for threads in (1, 2, 5):
        kernels = isplib.IsplibKernels(isa=level, threads=threads)
        out, mean, var = kernels.batch_norm(x, weight, bias, 1e-5, True)
        grads = kernels.batch_norm_backward(x, out, weight, bias, (mean, var), 1e-5, True)
        by_moments = kernels.normalise(x, mean, var, weight, bias, 1e-5, True)
        results.append([tensor.nan_to_num(123.0) for tensor in (out, mean, var, *grads, by_moments)])
    assert (results[0][0] == 123).sum(0).tolist() == [900 * (column == 3) for column in range(70)]
    assert all(map(torch.equal, results[0] * 2, results[1] + results[2]))


@over_kernels
@pytest.mark.parametrize("relu", [False, True])
def test_second_derivatives(kernels: Kernels, relu: bool) -> None:
    def normalised(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return batch_norm(kernels, x, weight, bias, 1e-3, relu)[0]

    inputs = leaf(7, 2), leaf(2), leaf(2)
    assert torch.autograd.gradcheck(normalised, inputs)
    assert torch.autograd.gradgradcheck(normalised, inputs)


def network() -> Sequential:
    torch.manual_seed(0)
    return Sequential(Linear(6, 40), BatchNorm1d(40), ReLU(), Linear(40, 4), BatchNorm1d(4)).double()


def bound(plain: Sequential) -> Sequential:
    layers = copy.deepcopy(plain)
    bindings = convs.bind(layers, OURS, transform_first=False, fold_norm=False, layers=True)
    assert [binding.module for binding in bindings if binding.conv == "BatchNorm1d"] == [".1"]
    return layers


@pytest.mark.parametrize(
    ("at", "layer"),
    [
        (0, None),
        (1, BatchNorm1d(40, momentum=None)),
        (1, BatchNorm1d(40, affine=False)),
        (1, BatchNorm1d(40, track_running_stats=False)),
    ],
)
def test_layers_compute_and_remember_what_torchs_do(at: int, layer: BatchNorm1d | None) -> None:
    plain = network()
    if layer is not None:
        plain[at] = copy.deepcopy(layer).double()
    ours, x = bound(plain), leaf(50, 6)
    for training in (True, True, False):
        out, truth = (layers.train(training)(x) for layers in (ours, plain))
        assert torch.allclose(out, truth, rtol=1e-12)
        gradients = torch.autograd.grad(out.square().sum(), ours.parameters())
        expected = torch.autograd.grad(truth.square().sum(), plain.parameters())
        for gradient, true_gradient in zip(gradients, expected, strict=True):
            assert torch.allclose(gradient, true_gradient, rtol=1e-9, atol=1e-9)
    state = ours.state_dict()
    assert all(torch.allclose(state[name], tensor, rtol=1e-12) for name, tensor in plain.state_dict().items())
    compiled = torch.compile(ours.train(), backend="aot_eager")
    assert torch.allclose(compiled(x), plain.train()(x), rtol=1e-12)


def test_what_is_put_in_their_place_later_is_applied() -> None:
    plain, x = network(), leaf(50, 6)
    ours = bound(plain)
    plain[2] = ours[2] = SiLU()
    assert torch.allclose(ours(x), plain(x), rtol=1e-12)
    ours = bound(network())
    plain = network()
    plain[1] = ours[1] = torch.nn.Identity()
    assert torch.allclose(ours(x), plain(x), rtol=1e-12)
    shared = Sequential(BatchNorm1d(6), activation := ReLU(), Linear(6, 6), activation).double()
    convs.bind(shared, OURS, transform_first=False, fold_norm=False, layers=True)
    assert torch.equal(shared[3](x), F.relu(x))


def test_one_row_is_refused_as_torch_refuses_it() -> None:
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        bound(network())(leaf(1, 6))


def test_what_stands_between_a_norm_and_its_relu_is_seen_as_it_is() -> None:
    plain, x, seen = network(), leaf(50, 6), []
    ours = bound(plain)
    for layers in (plain, ours):
        layers[1].register_forward_hook(lambda layer, given, out: seen.append(out))
        layers(x)
    assert torch.allclose(*seen, rtol=1e-12)
    plain, ours = (layers.eval() for layers in (network(), bound(network())))
    hidden = plain[0](x)
    assert torch.allclose(ours[:2](x), plain[1](hidden), rtol=1e-12)
    with torch.no_grad():
        for rows in (50, 1, 0):
            assert torch.allclose(ours(x[:rows]), plain(x[:rows]), rtol=1e-12)
    assert torch.equal(ours.train()[2](hidden), F.relu(hidden))
    plain.train().insert(2, SiLU())
    ours.insert(2, SiLU())
    assert torch.allclose(ours(x), plain(x), rtol=1e-12)


@pytest.mark.parametrize(
    ("norm", "shape"),
    [(BatchNorm1d(16), (1000, 4096)), (BatchNorm1d(64), (1000, 32)), (BatchNorm1d(8, eps=0.0), (50, 8))],
    ids=["too wide", "too narrow", "no eps"],
)
def test_what_torch_refuses_is_refused(norm: BatchNorm1d, shape: tuple[int, int]) -> None:
    plain = Sequential(norm, ReLU())
    ours = copy.deepcopy(plain)
    convs.bind(ours, OURS, transform_first=False, fold_norm=False, layers=True)
    if torch.__version__.startswith("2.8.") and norm.eps == 0:
        pytest.skip("torch 2.8 takes it")
    for layers in (plain, ours):
        with pytest.raises((RuntimeError, ValueError)):
            layers(torch.randn(shape))


def test_transforms_and_views_that_negate_are_left_to_torch() -> None:
    plain = network().float()
    ours = bound(plain)
    x = torch.randn(60, 6)
    negated = torch._neg_view(x)
    assert torch.allclose(ours(negated), plain(negated), rtol=1e-4, atol=1e-5)

    def loss(layers: Sequential, parameters: dict[str, Tensor]) -> Tensor:
        buffers = {name: tensor.clone() for name, tensor in plain.named_buffers()}
        return torch.func.functional_call(layers, (parameters, buffers), (x,)).square().sum()

    gradients = [
        torch.func.grad(lambda given, m=m: loss(m, given))(dict(plain.named_parameters())) for m in (ours, plain)
    ]
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], rtol=1e-3, atol=1e-4)


def test_a_norm_that_torch_and_kernels_share_in_one_pass_has_a_backward() -> None:
    norm = BatchNorm1d(6)
    plain = Sequential(norm, SiLU(), norm, ReLU()).double()
    model, x = copy.deepcopy(plain), torch.randn(9, 6, dtype=torch.float64)
    convs.bind(model, OURS, transform_first=False, fold_norm=False, layers=True)
    for each in (plain, model):
        each(x).square().sum().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
