"""What all tests run under: memory that nobody wrote holds NaN (floats) or nonsense (integers)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are defined, which then run on CPU tensors


def _poisoned(new: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def poisoned_new(*args: Any, **kwargs: Any) -> Tensor:
        tensor = new(*args, **kwargs)
        if tensor.device.type != "meta" and not tensor.is_sparse_csr:
            with torch.no_grad():
                if tensor.is_floating_point() or tensor.is_complex():
                    tensor.fill_(torch.nan)
                elif tensor.dtype != torch.bool:
                    tensor.fill_(torch.iinfo(tensor.dtype).max - 12)
        return tensor

    return poisoned_new


def _poisoned_array(new: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def poisoned_new(*args: Any, **kwargs: Any) -> np.ndarray:
        array = new(*args, **kwargs)
        if array.dtype.kind == "f":
            array.fill(np.nan)
        elif array.dtype.kind in "iu":
            array.fill(np.iinfo(array.dtype).max - 12)
        return array

    return poisoned_new


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An output that a kernel forgot to write shows as NaN instead of passing by luck."""
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, _poisoned(getattr(owner, name)))
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(np, name, _poisoned_array(getattr(np, name)))


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU, where nobody asked for Triton's interpreter either."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("gnnbench.backends.cuda._triton.INTERPRETED", False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest first, so that no process is left with one of them while the others have nothing to do."""
    items.sort(key=lambda item: "slow" not in item.keywords)
