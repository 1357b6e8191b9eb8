"""Run all tests under one condition: memory that nobody wrote holds NaN (floats) or nonsense (integers)."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gnnbench.measure import memory

if TYPE_CHECKING:
    from tests.support.compare_runner import Runner

os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])  # as jobs and commands import what tests give them

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are defined, which then run on CPU tensors
    for absent in (torch.cuda, torch.xpu, torch.mtia):  # would keep a traceback of every torch.manual_seed
        absent.manual_seed_all = lambda _: None


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


@pytest.fixture(scope="session", autouse=True)
def cold() -> Iterator[None]:
    """Runs leave malloc as it is, for other tests measure memory in the same process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "keep_freed", lambda: True)
        yield


@pytest.fixture(scope="session", autouse=True)
def frozen() -> Iterator[None]:
    """Garbage, which many tests have collected, is not looked for in all that imports and collection have made."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def server() -> Iterator[None]:
    """Jobs of all tests are forked from one process, as those of a comparison are."""
    from gnnbench import launch

    with launch.keep_server():
        yield


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An output that a kernel forgot to write shows as NaN instead of passing by luck."""
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, _poisoned(getattr(owner, name)))
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(np, name, _poisoned_array(getattr(np, name)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, with a cache of its own and without data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GNNBENCH_DATA", raising=False)
    return tmp_path


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks and searches of a round or two, beside ceilings that are measured in no time."""
    from gnnbench.benchmarks import contest, ops  # once the variable is set that kernels are defined by
    from gnnbench.measure.rounds import Budget
    from gnnbench.tuning import search

    small = {"STREAM_BYTES": 1 << 16, "LINES": 1 << 10, "LEAST_S": 1e-4, "GEMM": (8, 8, 8), "TALL": (8, 8, 8)}
    for name, value in small.items():
        monkeypatch.setattr(ops, name, value)
    monkeypatch.setattr(search, "SURVEY", Budget(rounds=1, least_s=0.0))
    for owner, name in ((search, "DUEL"), (contest, "BUDGET")):
        monkeypatch.setattr(owner, name, Budget(rounds=2, least_s=0.0))


@pytest.fixture
def fill_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Once it is called, no file can be written."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return lambda: monkeypatch.setattr(os, "fsync", full)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU, where nobody asked for Triton's interpreter either."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("gnnbench.backends.cuda._triton.INTERPRETED", False)
    monkeypatch.setattr("gnnbench.patch._engines", {})  # another test may have made that of cuda


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Three processes that have a graph in common, for all tests that need some."""
    from tests.support.ranks import Ranks

    ranks = Ranks(3, tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.end()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, Any, Any]:
    """Hide the variable that pytest changes in every test: in another environment jobs have another server."""
    environment, name = os.environ, "PYTEST_CURRENT_TEST"
    current = environment.pop(name)
    try:
        return (yield)
    finally:
        environment[name] = current


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest first, so that no process is left with one of them while the others have nothing to do."""
    items.sort(key=lambda item: "slow" not in item.keywords)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Comparisons without processes."""
    from gnnbench import comparison
    from tests.support.compare_runner import Runner

    runner = Runner()
    monkeypatch.setattr(comparison, "compare", partial(comparison.compare, execute=runner))
    return runner
