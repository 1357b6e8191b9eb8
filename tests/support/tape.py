"""A CUDA graph without a GPU: operations are recorded, and repeated on the same memory without Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gnnbench.training.loop import Trainer

aten = torch.ops.aten
WAITING = {
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.equal.default,
    aten._unique2.default,
    aten.repeat_interleave.Tensor,
}


class Tape(TorchDispatchMode):
    """Stands in for `capture.CudaGraph`, and is as strict."""

    held_bytes = 1 << 40  # which would be noticed anywhere

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.done: list[tuple[Any, Any, Any, Any]] = []
        self.rehearsed: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        by_mask = func in (aten.index.Tensor, aten.index_put_.default) and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if by_mask or func in WAITING:
            raise RuntimeError(f"called a synchronizing CUDA operation, {func}\nand more")
        out = func(*args, **(kwargs or {}))
        if func.namespace != "profiler":
            self.done.append((func, args, kwargs or {}, out))
        return out

    def rehearse(self, work: Callable[[], Tensor], *, strict: bool) -> Tensor:
        self.rehearsed.append(strict)
        with type(self)(torch.device("cpu")) if strict else nullcontext():
            return work()

    def record(self, work: Callable[[], Tensor]) -> Tensor:
        with self:
            return work()

    def replay(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, out in self.done:
                again = func(*args, **kwargs)
                for result, new, old in zip(func._schema.returns, _listed(again), _listed(out), strict=True):
                    if result.alias_info is None:
                        for source, target in zip(tree_leaves(new), tree_leaves(old), strict=True):
                            target.copy_(source)


def _listed(out: Any) -> list[Any]:
    return list(out) if isinstance(out, tuple) else [out]


@pytest.fixture
def capturable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets optimizers count their steps on the CPU, as they do on a GPU."""
    name = "_get_capturable_supported_devices"
    for module in (sys.modules["torch.optim.adam"], sys.modules["torch.optim.adamw"]):
        monkeypatch.setattr(module, name, lambda *_, **__: ["cpu", "cuda"], raising=False)


@contextmanager
def nothing_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes it an error to ask for the value of a tensor, as a recorded step never may."""
    names = (
        "item",
        "tolist",
        "nonzero",
        "numpy",
        "cpu",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__array__",
    )

    def asked(*_: Any, **__: Any) -> Any:
        raise AssertionError("the step asked for the value of a tensor")

    with monkeypatch.context() as patch:
        for owner, name in [*((Tensor, name) for name in names), (torch, "nonzero"), (torch, "equal")]:
            patch.setattr(owner, name, asked)
        yield


def losses(trainer: Trainer, epochs: int) -> list[float]:
    return [trainer.check(trainer.train()) for _ in range(epochs)]
