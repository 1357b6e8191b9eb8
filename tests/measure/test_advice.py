"""Doubts about a measurement: raised by their evidence, silent without it, each with a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from gnnbench.measure import advice
from gnnbench.results.schema import Result
from tests.support.samples import sample

QUIET = {"cpu": {"usable_cores": 8, "logical_cores": 8}, "threads": {"torch": 8, "openmp": ["libgomp.so.1"]}}
STEADY = [1.0 + 0.01 * (i % 3) for i in range(40)]


def result(times: list[float], environment: dict[str, Any] | None = None, warmup: int = 2) -> Result:
    epochs = enumerate([9.0] * warmup + times, start=1)
    samples = [sample(number, seconds, warmup=number <= warmup) for number, seconds in epochs]
    found = Result(
        status="ok",
        backend="pyg",
        dataset="Cora",
        config={"measure": {"warmup": warmup}},
        environment=QUIET if environment is None else environment,
        samples=samples,
    )
    found.refresh()
    return found


def test_steady_epochs_on_a_quiet_machine_raise_no_doubt() -> None:
    assert advice.warnings(result(STEADY)) == []


@pytest.mark.parametrize("status", ["unavailable", "failed"])
def test_a_run_without_samples_raises_no_doubt(status: Any) -> None:
    assert advice.warnings(Result(status=status, backend="cuda", dataset="Cora", config={})) == []


def test_more_threads_than_cores() -> None:
    crowded = {**QUIET, "threads": {"torch": 16, "openmp": []}}
    (text,) = advice.warnings(result(STEADY, crowded))
    assert text.startswith("16 threads share 8 processor cores")
    assert "measure.threads to 8" in text


def test_two_openmp_runtimes() -> None:
    double = {**QUIET, "threads": {"torch": 8, "openmp": ["libgomp.so.1", "libiomp5.so"]}}
    (text,) = advice.warnings(result(STEADY, double))
    assert "2 OpenMP runtimes are loaded (libgomp.so.1, libiomp5.so)" in text


@pytest.mark.parametrize(
    ("busy", "threads", "doubt"),
    [(1.5, 8, True), (7.5, 1, True), (0.2, 8, False), (1.5, 4, False), (None, 8, False)],
)
def test_other_programs_on_cores_that_the_run_needs(busy: float | None, threads: int, doubt: bool) -> None:
    shared = {**QUIET, "threads": {"torch": threads, "openmp": []}, "other_programs_busy_cores": busy}
    found = advice.warnings(result(STEADY, shared))
    assert len(found) == doubt
    if doubt:
        used = "1 thread" if threads == 1 else "8 threads"
        assert found[0].startswith(
            f"other programs kept {busy} of 8 processor cores busy during this run, which used {used}:"
        )


def test_epochs_that_still_get_faster_name_a_longer_warm_up() -> None:
    (text,) = advice.warnings(result([2.0 - 0.1 * i for i in range(10)] + STEADY))
    assert "from 1.45 s to 1.01 s" in text
    assert text.endswith("set measure.warmup to 14 (now 2)")


def test_a_large_spread() -> None:
    (text,) = advice.warnings(result([1.0, 2.0, 3.0] * 9))
    assert text.startswith("epoch times spread by 50% of their median (27 epochs)")
