"""The model of the machine: measured once, kept, ignored where it is broken or foreign, and off by a variable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnbench.backends.isplib import IsplibKernels, machine, measurement
from gnnbench.backends.isplib.machine import DEFAULT, LINE_BYTES, LINES, TABLES, Distance
from tests.support.commands import run


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty one, and tables so small that all is measured in no time."""
    monkeypatch.setenv("GNNBENCH_CACHE", str(tmp_path))
    monkeypatch.delenv(machine.VARIABLE)
    monkeypatch.setattr(machine, "TABLES", tuple(1 << bits for bits in range(14, 14 + len(TABLES))))
    monkeypatch.setattr(measurement, "MOST_LINES", 1 << 10)
    monkeypatch.setattr(measurement, "STEADY", float("inf"))
    monkeypatch.setattr(measurement, "MOST_S", 600.0)
    machine.current.cache_clear()
    yield tmp_path
    machine.current.cache_clear()


def learn() -> machine.Machine:
    measurement.learn(IsplibKernels(), 2)
    return machine.current()


def test_a_machine_is_measured_once_and_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learned = learn()
    assert learned is not DEFAULT
    assert learned.gather["spmm"].keys() == {*machine.PREFETCH}
    assert min(learned.build, learned.build_edge) > 0
    assert min(min(row) for table in learned.gather["spmm_max"].values() for row in table) > 0
    machine.current.cache_clear()
    assert machine.current() == learned
    monkeypatch.setattr(measurement, "MOST_S", 0.0)
    assert learn() == learned
    monkeypatch.setenv(machine.VARIABLE, "off")
    machine.current.cache_clear()
    assert machine.current() is learn() is DEFAULT


@pytest.mark.parametrize(("limit", "value"), [("MOST_S", 0.0), ("STEADY", 0.0)])
def test_a_machine_that_others_keep_busy_is_not_learned(
    cache: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    monkeypatch.setattr(measurement, limit, value)
    assert learn() is DEFAULT
    assert not [*cache.rglob("*.json")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[:100], "it is not a model of a machine"),
        (lambda text: text.replace('"build_edge": ', '"older": '), "it is not a model of a machine"),
        (lambda text: text.replace('"facts": {', '"facts": {"other": 1, '), "it is of another machine or version"),
    ],
)
def test_a_file_that_cannot_be_used_is_ignored(cache: Path, change: object, words: str) -> None:
    learn()
    path = machine.path()
    assert callable(change)
    path.write_text(change(path.read_text()))
    machine.current.cache_clear()
    with pytest.warns(UserWarning, match=words):
        assert machine.current() is DEFAULT


def test_figures_between_those_that_were_measured() -> None:
    def ns(lines: int, *shares: tuple[float, float]) -> float:
        distances = tuple(Distance(table / lines / LINE_BYTES, 0, share) for table, share in shares)
        return DEFAULT.row_ns("spmm", 16, 0, 10, lines, distances) / 10

    figures = DEFAULT.gather["spmm"][16]
    for i, lines in enumerate(LINES):
        for j, table in enumerate(TABLES):
            assert ns(lines, (table, 1.0)) == pytest.approx(figures[i][j])
    assert ns(1, (1, 1.0)) == pytest.approx(figures[0][0])
    assert ns(1, (1e12, 1.0)) == pytest.approx(figures[0][-1])
    assert ns(32, (TABLES[0], 1.0)) == pytest.approx(2 * figures[-1][0])
    assert ns(2, (TABLES[0], 1.0)) == pytest.approx((2 * figures[0][0] + figures[1][0]) / 3)
    share = TABLES[3] / TABLES[5]
    assert ns(1, (TABLES[3], share), (TABLES[5], 1 - share)) == pytest.approx(figures[0][5])
    assert ns(1, (TABLES[3], 0.9), (TABLES[5], 0.1)) < figures[0][5]
    rows = DEFAULT.row_ns("spmm", 16, 100, 0, 4, (Distance(1, 0, 1.0),))
    assert rows == pytest.approx(100 * DEFAULT.row["spmm"][1])
    streamed = DEFAULT.row_ns(
        "spmm_max", 16, 10, 320, 4, (Distance(1, TABLES[3] / (4 + 4 * LINE_BYTES / 16), 1.0),)
    )
    assert streamed == pytest.approx(320 * DEFAULT.gather["spmm_max"][16][1][3], rel=0.01)


def test_the_mean_of_gathers_that_cost_differently() -> None:
    assert measurement._exponent(0.5, 2.5) == pytest.approx(1.0, abs=0.02)
    assert measurement._exponent(0.0, 2.0) == pytest.approx(2.0, abs=0.02)
    assert measurement._exponent(0.5, 1.0) == measurement.MOST_EXPONENT


def test_what_blocks_cost() -> None:
    copy, walk, edge = DEFAULT.blocked["spmm"][2][0]
    three_lines = DEFAULT.blocked_ns("spmm", 0, rows=10, cols=100, edges=1000, blocks=5, lines=3)
    assert three_lines == pytest.approx(2 * (110 * 2 * copy + 10 * 5 * walk + 1000 * edge))
    beyond, between, least = (
        DEFAULT.blocked_ns("spmm", shift, rows=0, cols=0, edges=10, blocks=1, lines=2) / 10
        for shift in (9, 0.5, -9)
    )
    costs = [each for _, _, each in DEFAULT.blocked["spmm"][2].values()]
    assert [beyond, between, least] == pytest.approx([costs[-1], (costs[1] + costs[2]) / 2, costs[0]])


def test_the_command_measures_anew(cache: Path) -> None:
    output = run("tune", "--machine")
    assert str(machine.path()) in output.stdout
    assert machine.path().exists()
