"""Dropout by a hash, and products with features that are mostly zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear

from gnnbench.backends import isplib
from gnnbench.config import BackendConfig
from gnnbench.errors import UnsupportedOp
from gnnbench.ops.dropout import Dropout
from gnnbench.ops.features import Features, dropout, mostly_zero
from gnnbench.ops.kernels import Kernels
from gnnbench.training import setup
from tests.support.kernels import KERNELS, OURS, check, double, leaf, normal, over_dtypes, over_kernels
from tests.support.wrong_kernels import dataset, run_config

SIZES = [(0,), (1,), (7, 3), (4095,), (2, 4097), (123, 457)]  # around the length of a piece, and of many
MODELS = ("gcn", "sage mean", "gin", "gat", "gatv2", "transformer")


@over_dtypes
@pytest.mark.parametrize("level", range(len(KERNELS) - 1))
def test_every_kernel_drops_what_the_reference_drops(level: int, dtype: torch.dtype) -> None:
    for shape in SIZES:
        x = normal(*shape, dtype=dtype)
        for p in (0.1, 0.5, 1.0):
            which = Dropout(p, torch.tensor([2**40 + 12345]))
            expected = Kernels().dropout(x, which)
            for threads in (1, 2, 5):
                assert torch.equal(isplib.IsplibKernels(isa=level, threads=threads).dropout(x, which), expected)


@over_kernels
def test_gradients_go_through_the_mask_of_their_forward(kernels: Kernels) -> None:
    x = leaf(90, 50)

    def passed(x: Tensor) -> Tensor:
        torch.default_generator.manual_seed(3)
        return dropout(kernels, x, 0.4)

    out = passed(x)
    (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    assert torch.equal(grad * x, out)
    assert torch.autograd.gradgradcheck(passed, leaf(3, 2))
    assert dropout(kernels, x, 0.4, training=False) is x
    assert dropout(kernels, x, 0.0) is x
    assert not torch.equal(dropout(kernels, x, 0.4), dropout(kernels, x, 0.4))


@pytest.mark.parametrize("p", [0.05, 0.5, 0.8])
def test_what_is_dropped_is_random(p: float) -> None:
    """Shares, and correlations of neighbours, of other places in a piece, of pieces and of epochs."""
    torch.default_generator.manual_seed(0)
    kept = [(dropout(OURS, torch.ones(2**20), p) > 0).double() - (1 - p) for _ in range(6)]
    shifts = (1, 2, 3, 7, 16, 64, 1433, 4096, 65536)
    pairs = [(mask[:-shift], mask[shift:]) for mask in kept[:2] for shift in shifts]
    pairs += [(first, second) for k, first in enumerate(kept) for second in kept[:k]]
    sigma, root = (p * (1 - p)) ** 0.5, 2**10
    for mask in kept:
        assert abs(mask.mean()) < 5 * sigma / root
        by_piece = mask.view(-1, 4096).sum(1) / (sigma * 64)
        by_place = mask.view(-1, 4096).sum(0) / (sigma * 16)
        assert abs(by_piece.var() - 1) < 0.5
        assert abs(by_place.var() - 1) < 0.15
    for first, second in pairs:
        assert abs((first * second).mean()) < 5 * sigma**2 / root


def sparse(rows: int, columns: int, share: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """Features with an empty row and an empty column."""
    x = normal(rows, columns, dtype=dtype)
    x[torch.rand(rows, columns, generator=torch.Generator().manual_seed(1)) > share] = 0
    x[rows // 2], x[:, columns // 2] = 0, 0
    return x


@over_kernels
@over_dtypes
@pytest.mark.parametrize("shape", [(1, 1), (40, 300), (300, 40), (500, 0)], ids=str)
def test_products_without_zeros_are_those_of_the_matrix(
    kernels: Kernels, dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    x, layer = sparse(*shape, 0.1) if all(shape) else torch.zeros(shape), Linear(shape[1], 17).to(dtype)
    features: Any = Features.of(kernels, x.to(dtype))
    truth = F.linear(*double(x, layer.weight, layer.bias))
    expected = torch.autograd.grad(truth.square().sum(), (layer.weight, layer.bias))
    for out in (layer(features), features @ layer.weight.t() + layer.bias):
        check(out.detach(), truth.detach())
        for found, gradient in zip(
            torch.autograd.grad(out.square().sum(), (layer.weight, layer.bias)), expected, strict=True
        ):
            check(found, gradient.double())
    assert features.shape == x.shape
    with pytest.raises(TypeError):
        torch.relu(features)


def test_dropout_of_features_drops_only_what_is_not_zero() -> None:
    x = sparse(400, 300, 0.2, torch.float32)
    features: Any = Features.of(OURS, x)
    eye = torch.eye(300)
    for dropped in (dropout(OURS, features, 0.25), F.dropout(features, 0.25)):
        dense = dropped @ eye
        kept = dense[x != 0] != 0
        assert torch.allclose(dense[dense != 0], x[dense != 0] / 0.75)
        assert abs(kept.double().mean() - 0.75) < 0.02
    assert F.dropout(features, 0.25, training=False).value is features.value


def test_only_constant_features_with_many_zeros_are_worth_it() -> None:
    assert mostly_zero(sparse(30, 30, 0.1))
    assert not mostly_zero(normal(30, 30))
    assert not mostly_zero(sparse(30, 30, 0.1).requires_grad_())
    assert not mostly_zero(torch.zeros(3, 3, dtype=torch.int64))


@pytest.mark.skipif(bool(isplib.MISSING), reason=isplib.MISSING)
@pytest.mark.parametrize("model", MODELS)
def test_models_compute_the_same_from_sparse_features(model: str) -> None:
    graph = dataset()
    graph.x.copy_(sparse(*graph.x.shape, 0.2, torch.float32))
    config, results = run_config(model), []
    for asked in (True, False):
        backend = isplib.Backend(BackendConfig(name="isplib", sparse_features=asked))
        built = setup.build(config, setup.ModelDims.of(graph)).eval()
        ready = setup.prepare(config, built, backend, graph)
        assert ("sparse_features" in ready.bindings[0].rewrites) == asked
        (batch,) = ready.batching.samples()
        assert isinstance(batch.x, Features) == asked
        batch.loss(logits := batch.outputs(built)).backward()
        results.append([logits, *(parameter.grad for parameter in built.parameters())])
    for ours, dense in zip(*results, strict=True):
        assert torch.allclose(ours, dense, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(bool(isplib.MISSING), reason=isplib.MISSING)
@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model, "drop", torch.nn.ReLU()),
        lambda model: model.convs[0].register_forward_pre_hook(lambda conv, given: (given[0].relu(), given[1])),
    ],
)
def test_features_that_meet_more_than_dropout_and_weights_keep_their_zeros(change: Callable[[Any], None]) -> None:
    graph = dataset()
    graph.x.copy_(sparse(*graph.x.shape, 0.2, torch.float32))
    config = run_config("gat")
    model = setup.build(config, setup.ModelDims.of(graph)).eval()
    change(model)
    ready = setup.prepare(config, model, isplib.Backend(BackendConfig(name="isplib")), graph)
    (batch,) = ready.batching.samples()
    assert batch.outputs(model).isfinite().all()


def test_shares_and_types_that_cannot_be_dropped_are_refused() -> None:
    for p in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="between 0 and 1"):
            dropout(OURS, torch.randn(5), p)
    with pytest.raises(UnsupportedOp, match="expected floating point"):
        dropout(OURS, torch.arange(5), 0.5)
