"""Linear layers on kernels: beside torch's in float64, in models, and layers that are not plain."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear, Sequential

from gnnbench import convs
from gnnbench.backends import isplib
from gnnbench.backends.isplib import layers as kernel
from gnnbench.ops.dense import linear
from gnnbench.ops.kernels import Kernels
from tests.ops import test_grad
from tests.support.kernels import KERNELS, LEVELS, OURS, leaf, over_dtypes, over_kernels

AMX = isplib.ISA.index("amx")
TILES = [AMX] if not isplib.MISSING and isplib.isa_level() == AMX else []  # for products alone
SHAPES = [(0, 3, 2), (1, 1, 1), (7, 5, 9), (97, 16, 32), (300, 70, 200), (1100, 41, 63), (1537, 64, 8)]


@pytest.fixture
def small_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels take every product but empty ones."""
    lower_limits(monkeypatch)


def lower_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEAST", "LEAST_WEIGHT", "LEAST_ROWS", "LEAST_WORK", "NARROW"):
        monkeypatch.setattr(kernel, name, 1)
    monkeypatch.setattr(kernel, "LEAST_TILES", dict.fromkeys(kernel.LEAST_TILES, 1))


@pytest.mark.parametrize("kernels", [*KERNELS.values(), *(isplib.IsplibKernels(isa=level) for level in TILES)])
@over_dtypes
@pytest.mark.usefixtures("small_work")
def test_products_and_gradients(kernels: Kernels, dtype: torch.dtype) -> None:
    for rows, ins, outs in SHAPES:
        given = leaf(rows, ins, dtype=dtype), leaf(outs, ins, dtype=dtype), leaf(outs, dtype=dtype)
        for inputs in (given, given[:2]):
            test_grad.check(lambda *inputs: linear(kernels, *inputs), F.linear, *inputs)
        x, weight, bias = given
        constant = linear(kernels, x.detach(), weight, bias)
        for gradient, expected in zip(
            torch.autograd.grad(constant.sum(), (weight, bias)),
            torch.autograd.grad(linear(kernels, x, weight, bias).sum(), (weight, bias)),
            strict=True,
        ):
            assert torch.equal(gradient, expected)
        _check_in_place(kernels, x.detach(), weight.detach())


def _check_in_place(kernels: Kernels, x: Tensor, weight: Tensor) -> None:
    """Products that are written to rows of another tensor, and gradients of a weight that are added to others."""
    room = x.new_full((len(x) + 2, len(weight)), torch.nan)
    kernels.product(x, weight, room[1:-1])
    torch.testing.assert_close(room[1:-1], x @ weight.t())
    assert room[[0, -1]].isnan().all()
    before = torch.randn_like(weight)
    added = before.clone()
    kernels.add_weight_grad(room[1:-1], x, added)
    close = {"rtol": 1e-4, "atol": 1e-3} if x.dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9}
    torch.testing.assert_close(added, before + room[1:-1].t() @ x, **close)


@pytest.mark.parametrize("level", [*LEVELS, *TILES])
@pytest.mark.usefixtures("small_work")
def test_results_do_not_depend_on_threads(level: int) -> None:
    x, weight, bias, grad_out = torch.randn(2000, 50), torch.randn(37, 50), torch.randn(37), torch.randn(2000, 37)
    results = []
    for threads in (1, 2, 5):
        kernels = isplib.IsplibKernels(isa=level, threads=threads)
        results.append(
            [kernels.linear(x, weight, bias), *kernels.linear_backward(grad_out, x, weight, needs_x=True)]
        )
    for result in zip(*results, strict=True):
        assert all(torch.equal(tensor, result[0]) for tensor in result[1:] if tensor is not None)


@pytest.mark.parametrize("level", TILES)
@pytest.mark.usefixtures("small_work")
def test_products_by_tiles_err_no_more_than_those_of_floats(level: int) -> None:
    """On numbers of all sizes, and numbers so large that their pieces in bfloat16 would be no numbers."""
    torch.manual_seed(0)
    x, weight, grad_out = torch.randn(700, 1300).exp(), torch.randn(150, 1300), torch.randn(700, 150)
    tiles, vectors = isplib.IsplibKernels(isa=level), isplib.IsplibKernels(isa=level - 1)
    given = grad_out, x, weight
    exact = (
        x.double() @ weight.t().double(),
        grad_out.double() @ weight.double(),
        grad_out.t().double() @ x.double(),
    )

    def errors(kernels: Kernels) -> list[float]:
        found = kernels.linear(x, weight, None), *kernels.linear_backward(*given, needs_x=True)[:2]
        return [float((each - truth).norm()) for each, truth in zip(found, exact, strict=True) if each is not None]

    assert all(ours <= 1.2 * plain for ours, plain in zip(errors(tiles), errors(vectors), strict=True))
    for value in (torch.inf, -torch.inf, torch.nan, 3.4e38, 1e30):
        x[5, 7], grad_out[650, 3] = value, value
        grad_x, grad_weight, _ = tiles.linear_backward(*given, needs_x=True)
        for found, truth in (
            (tiles.linear(x, weight, None), x @ weight.t()),
            (grad_x, grad_out @ weight),
            (grad_weight, grad_out.t() @ x),
        ):
            assert found is not None
            torch.testing.assert_close(found, truth, rtol=1e-4, atol=1e-3, equal_nan=True)


@over_kernels
@pytest.mark.usefixtures("small_work")
def test_second_derivatives(kernels: Kernels) -> None:
    def product(*inputs: Tensor) -> Tensor:
        return linear(kernels, *inputs)

    inputs = leaf(7, 2), leaf(3, 2), leaf(3)
    assert torch.autograd.gradcheck(product, inputs)
    assert torch.autograd.gradgradcheck(product, inputs)


@pytest.mark.usefixtures("small_work")
def test_only_plain_layers_in_training_run_on_kernels() -> None:
    class Doubled(Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    torch.manual_seed(0)
    plain = Sequential(Linear(6, 40), Doubled(40, 5), Linear(5, 3, bias=False))
    ours = copy.deepcopy(plain)
    bindings = convs.bind(ours, OURS, transform_first=False, fold_norm=False, layers=True)
    assert [binding.module for binding in bindings] == ["0", "2"]
    x = leaf(50, 6, dtype=torch.float32)
    assert torch.allclose(ours(x), plain(x), rtol=1e-5)
    assert torch.allclose(ours(x.view(5, 10, 6)), plain(x.view(5, 10, 6)), rtol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ours(x), plain(x))
    assert torch.allclose(torch.compile(ours, backend="aot_eager")(x), plain(x), rtol=1e-5)
    ours[0].weight.requires_grad_(False)
    assert torch.allclose(ours(x), plain(x), rtol=1e-5)
    assert OURS.pair_graphs is not None  # a copied model may hold kernels that keep graphs
    assert torch.allclose(copy.deepcopy(ours)(x), plain(x), rtol=1e-5)


@pytest.mark.usefixtures("small_work")
@pytest.mark.parametrize(
    "make", [lambda: torch.randn(4, 2)[:, 0], lambda: torch.randn(1).expand(4), lambda: torch.randn(1)]
)
def test_a_bias_that_is_no_vector_of_outputs_is_torchs(make: Callable[[], Tensor]) -> None:
    x, weight, bias = torch.randn(500, 6), torch.randn(4, 6, requires_grad=True), make()
    assert torch.allclose(linear(OURS, x, weight, bias), F.linear(x, weight, bias), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("small_work")
@pytest.mark.parametrize("given", [(32, torch.float32), (96, torch.float32), (64, torch.float64)], ids=str)
def test_what_torch_refuses_is_refused(given: tuple[int, torch.dtype]) -> None:
    layer = Linear(64, 64)
    convs.bind(layer, OURS, transform_first=False, fold_norm=False, layers=True)
    with pytest.raises(RuntimeError):
        layer(torch.randn(4096, given[0], dtype=given[1]))
    with pytest.raises(RuntimeError):
        linear(OURS, torch.randn(50, 64), layer.weight, torch.randn(64).double())


@pytest.mark.usefixtures("small_work")
def test_transforms_and_views_that_negate_are_left_to_torch() -> None:
    layer = Linear(6, 40)
    plain, x = copy.deepcopy(layer), torch.randn(50, 6)
    convs.bind(layer, OURS, transform_first=False, fold_norm=False, layers=True)
    assert torch.allclose(layer(torch._neg_view(x)), plain(-x), rtol=1e-5, atol=1e-6)
    for transform in (torch.func.jacrev, torch.func.jacfwd, torch.func.vmap):
        assert torch.allclose(transform(layer)(x), transform(plain)(x), rtol=1e-5, atol=1e-6)
