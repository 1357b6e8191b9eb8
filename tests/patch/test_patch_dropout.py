"""Dropout by a hash in the drop-in, for programs that ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import gnnbench
from gnnbench.backends import isplib
from gnnbench.errors import UnsupportedOp
from gnnbench.ops.features import Features
from tests.patch.test_patch_features import EDGES, WIDTH, features, products
from tests.support.dropin import always, untouched

__all__ = ["always", "products", "untouched"]
pytestmark = [pytest.mark.usefixtures("always"), pytest.mark.skipif(bool(isplib.MISSING), reason=isplib.MISSING)]
TORCHS = F.dropout


@pytest.fixture
def hashed() -> Iterator[None]:
    with gnnbench.patched(dropout=True, strict=True):
        yield


def drawn(run: Callable[[], Any], seed: int = 3) -> Any:
    torch.default_generator.manual_seed(seed)
    return run()


def test_only_who_asks_for_it_gets_it() -> None:
    for options in ({}, {"names": ["GCNConv"]}):
        gnnbench.patch_pyg(**options)
        assert F.dropout is TORCHS
        gnnbench.patch_pyg(**options, dropout=True)
        assert F.dropout is not TORCHS
        with gnnbench.patched():
            assert F.dropout is TORCHS
    gnnbench.unpatch_pyg()
    assert F.dropout is TORCHS


@pytest.mark.usefixtures("hashed")
@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_what_stays_is_scaled_and_follows_torchs_seed_on_any_threads(p: float) -> None:
    layer, x = torch.nn.Dropout(p), torch.randn(300, 400).requires_grad_()
    out = drawn(lambda: layer(x))
    kept = out != 0
    torch.testing.assert_close(out[kept], x[kept] / (1 - p))
    assert abs(kept.double().mean() - 1 + p) < 0.01
    assert torch.equal(torch.autograd.grad(out.sum(), x)[0] * x, out)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(threads, 2))
        assert torch.equal(drawn(lambda: F.dropout(x, p)), out)
    finally:
        torch.set_num_threads(threads)
    assert not torch.equal(layer(x), out)
    assert gnnbench.patch_status().accelerated == {"dropout": 3}


@pytest.mark.usefixtures("hashed")
def test_calls_at_the_edges_are_torchs() -> None:
    x = torch.randn(90, 100)
    assert F.dropout(x, 0.5, False) is F.dropout(x, 0.0) is torch.nn.Dropout(0.5).eval()(x) is x
    assert not F.dropout(x, 1.0).any()
    assert F.dropout(torch.empty(0, 3)).shape == (0, 3)
    given = x.clone()
    assert F.dropout(given, 0.5, inplace=True) is given
    assert torch.equal(given[given != 0], 2 * x[given != 0])
    with pytest.raises(RuntimeError, match="leaf Variable"):
        F.dropout(x.clone().requires_grad_(), inplace=True)
    with torch.no_grad():
        assert F.dropout(x, training=False) is F.dropout(x, 0.5, False) is x
    with torch.autocast("cpu"), torch.inference_mode():
        assert F.dropout(x).dtype == torch.float32
    for wrong, p in ((x, 1.5), (x.bfloat16(), 0.5)):
        with pytest.raises(UnsupportedOp), gnnbench.patched(dropout=True, strict=True):
            F.dropout(wrong, p)
    with gnnbench.patched(dropout=True):
        assert F.dropout(x.bfloat16()).dtype == torch.bfloat16
        with pytest.raises(ValueError, match="between 0 and 1"):
            F.dropout(x, 1.5)


class Named(Tensor):
    """Knows functions by what torch calls them."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return "dropped" if function is TORCHS else super().__torch_function__(function, types, args, kwargs or {})


def test_subclasses_and_compilers_see_torchs_own_function() -> None:
    x = torch.randn(90, 100)
    expected = drawn(lambda: F.dropout(x))
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: F.dropout(x), backend="aot_eager", fullgraph=True)
    with gnnbench.patched(dropout=True):
        assert F.dropout(x.as_subclass(Named)) == "dropped"
        assert torch.equal(drawn(lambda: compiled(x)), expected)
    assert gnnbench.patch_status().accelerated == {}


@pytest.mark.usefixtures("hashed")
def test_what_is_left_of_features_is_multiplied_without_zeros(products: list[Features]) -> None:
    conv, x, held = pyg.GCNConv(WIDTH, 8), features(), []
    edits: list[Callable[[Tensor], Any]] = [lambda out: None] * 4 + [lambda out: out.add_(1), lambda out: None]
    for edit in edits:
        out = F.dropout(x, 0.4)
        assert (out == 0).sum() > (x == 0).sum()
        torch.testing.assert_close(out[out != 0], x[out != 0] / 0.6)
        held = [*held[-1:], (out, out.clone())]  # so that memory serves again, but none that is held
        assert all(torch.equal(kept, copy) for kept, copy in held)
        edit(out)
        held[-1] = out, out.clone()
        ours = conv(out, EDGES)
        ours_grad = torch.autograd.grad(ours.square().sum(), conv.lin.weight)
        with gnnbench.unpatched():
            theirs = conv(out, EDGES)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours_grad, torch.autograd.grad(theirs.square().sum(), conv.lin.weight))
        del ours, theirs
    assert len(products) == 4  # but for the first, when features are new, and the one that was edited


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_runs_again_drops_the_same(reentrant: bool) -> None:
    layer, x, weight = torch.nn.Linear(WIDTH, 8), features(), torch.randn(700, 8)
    dummy = torch.zeros(1, requires_grad=True)  # without which a reentrant checkpoint has no backward

    def run(x: Tensor, dummy: Tensor) -> Tensor:
        return layer(F.dropout(x)) + dummy

    def checkpointed() -> Tensor:
        return checkpoint(run, x, dummy, use_reentrant=reentrant)

    def backward(call: Callable[[], Tensor]) -> list[Tensor]:
        layer.zero_grad()
        (drawn(call) * weight).sum().backward()
        return [parameter.grad.clone() for parameter in layer.parameters()]

    gnnbench.patch_pyg(dropout=True)
    expected = backward(lambda: run(x, dummy))
    for _ in range(3):
        torch.testing.assert_close(backward(checkpointed), expected)
    gnnbench.unpatch_pyg()
    expected = backward(checkpointed)
    with gnnbench.patched(dropout=True):  # which is over before the backward
        out = drawn(checkpointed)
    torch.testing.assert_close(backward(lambda: out), expected)
