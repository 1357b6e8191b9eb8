"""How implementations meet: each is checked, weighed, timed in turn with the others, and checked again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import torch

from gnnbench.benchmarks.records import BatchBench, Benchmark, Measured, ratios, time_of
from gnnbench.datasets import GraphsDataset, NodeDataset, TypedDataset
from gnnbench.errors import ConfigError, did_you_mean
from gnnbench.measure import code, environment, memory
from gnnbench.measure.rounds import Budget, Timed, interleaved
from gnnbench.results import files

B = TypeVar("B", bound=Benchmark)
R = TypeVar("R", bound=BatchBench)
T = TypeVar("T")
FILE = "bench.json"
BUDGET = Budget()
CPU = torch.device("cpu")
SIZES = (64, 256, 1024)  # of batches


@dataclass
class Contestant:
    """One implementation on one case.

    `check`, given its row, which has a time once it was measured, and which learns how far off it is, says why
    what it computes is wrong; empty if it is right.
    """

    time: Timed
    check: Callable[[Any], str] = lambda _: ""
    # Bytes that one call takes on top, and of the whole process; None where that cannot be told.
    memory: Callable[[], tuple[int, int] | None] | None = None
    items: float = 1.0  # of a call, whose time is that of one of them


def made(makers: Mapping[str, Callable[[], T]], rows: Iterable[Measured]) -> dict[str, T]:
    """Make what can be made, by implementation; `rows` of the others say why not."""
    result = {}
    for name, make in makers.items():
        with _told(*(row for row in rows if row.implementation == name)):
            result[name] = make()
    return result


def race(
    contestants: Mapping[str, Contestant],
    rows: Mapping[str, Any],
    against: Sequence[str],
    say: Callable[[str], Any] = lambda _: None,
    label: str = "",
    budget: Budget | None = None,
) -> None:
    """Check contestants, weigh and time those that are right in turn, check them again, and compare all.

    Args:
        rows: of the same names, and of others, that failed before; they learn what is found.
        say: is told what is about to start on the case with this `label`.
        budget: `BUDGET` if None.
    """
    for name, contestant in contestants.items():
        say(f"{label}: checking {name}")
        _check(contestant, rows[name])
    say(f"{label}: timing")
    for name, contestant in contestants.items():
        if contestant.memory and rows[name].status == "pending":
            with _told(rows[name]):
                found = contestant.memory()  # not of the first call, which has things to keep for all later ones
                rows[name].memory_increase_bytes, rows[name].peak_memory_bytes = found or (None, None)
    right = {name: each.time for name, each in contestants.items() if rows[name].status == "pending"}
    times = interleaved(right, budget or BUDGET, lambda name, error: fail(rows[name], error))
    for name, samples in times.items():
        row, count = rows[name], contestants[name].items
        row.status, row.time_s = "ok", time_of([[seconds / count for seconds in round_] for round_ in samples])
        _check(contestants[name], row, "after it was timed, ")
        row.time_s = row.time_s if row.status == "ok" else None
    ratios(rows, against)


def _check(contestant: Contestant, row: Measured, when: str = "") -> None:
    with _told(row):
        if reason := contestant.check(row):
            row.status, row.reason = "wrong", when + reason


@contextmanager
def _told(*rows: Measured) -> Iterator[None]:
    """Let what fails in this block be the end of rows."""
    try:
        yield
    except Exception as error:
        for row in rows:
            fail(row, error)


def fail(row: Measured, error: Exception) -> None:
    """Set what became of a row that has no figures."""
    row.status, row.reason = memory.ending(error)
    if isinstance(error, NotImplementedError):  # by torch, for this type of numbers
        row.status = "unsupported"


def batches(
    record: R,
    makers: Mapping[str, Callable[[], Any]],
    *,
    out: Path,
    **how: Any,
) -> R:
    """`record` with batches of every size checked and timed; `out/bench.json` is written after each.

    Args:
        makers: by implementation; what one makes has `contestant`, which a row that has not failed is given.
        how: as of `measured`, whose errors it raises.
    """

    def steps() -> Iterator[str]:
        yield "sorting the edges"
        ready = made(makers, record.rows)
        for (size, _), some in groupby(record.rows, lambda row: (row.batch_size, getattr(row, "part", ""))):
            yield f"batches of {size}: checking, then timing"
            rows = {row.implementation: row for row in some}
            able = {
                name: partial(ready[name].contestant, row) for name, row in rows.items() if row.status == "pending"
            }
            race(made(able, rows.values()), rows, record.peers)

    return measured(record, steps(), out / FILE, **how)


def facts(dataset: NodeDataset | TypedDataset | GraphsDataset) -> dict[str, Any]:
    """The fields of a record that say what it is measured on."""
    return {"graph": dataset.label, "nodes": dataset.num_nodes, "edges": dataset.num_edges}


def unknown(noun: str, names: Iterable[str], allowed: Collection[str]) -> list[str]:
    """A sentence for each name that is not allowed."""
    return [f"unknown {noun} {name!r}{did_you_mean(name, allowed)}" for name in names if name not in allowed]


def check(problems: list[str], sizes: Sequence[int], members: str, most: int | None = None) -> None:
    """Raise ConfigError for problems, and for sizes that batches of such members cannot have."""
    remedy = f"1 to {most}" if most else "1 or more"
    bad = [size for size in sizes if size < 1 or (most and size > most)]
    problems += [f"a batch of {size} {members} is none; give {remedy}" for size in bad]
    problems += ["give at least one batch size"] * (not sizes)
    if problems:
        raise ConfigError(*problems)


def measured(
    record: B,
    steps: Iterable[str],
    path: Path,
    *,
    on_event: Callable[[str], None] = lambda _: None,
    memory_limit: str = "90%",
    device: torch.device = CPU,
) -> B:
    """`record` with its rows measured by `steps`, which say what each does before it, and on which machine.

    It is written after every step, and on a stop, which keeps what was measured.

    Args:
        on_event: hears what is about to start.
        memory_limit: empty for none.

    Raises:
        GnnbenchError: memory is exceeded, or `path` cannot be written.
    """
    record.status, record.code = "interrupted", code.digest()
    record.environment = record.environment or environment.describe()  # where it began, if it goes on
    try:
        with memory.limited(memory_limit, device) if memory_limit else nullcontext():
            for step in steps:
                files.save_json(record, path)
                on_event(step)
        record.status = "out of budget" if any(row.status == "not run" for row in record.rows) else "ok"
    except KeyboardInterrupt:
        pass
    files.save_json(record, path)
    return record
