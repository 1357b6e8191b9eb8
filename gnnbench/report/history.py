"""Results over time as tables."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report.figures import NOTHING
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from gnnbench.history import Entry

OF_FOLDERS = ("comparison.json", "results.json")  # named by their folder
TO_THE_MINUTE = len("2025-11-22 12:00")


def tables(entries: Sequence[Entry]) -> list[Table]:
    """A table per configuration: a row per result, the newest last, and a column per backend."""
    drawn = [_table(group) for group in _groups(entries)]
    machines = dict.fromkeys(entry.machine for entry in entries if entry.machine)
    where = [f"Machine: {machine}" for machine in machines]
    if not drawn:
        return [Table(("written", "epoch"), [], notes=["There is no run or comparison of this machine"])]
    return [*drawn[:-1], replace(drawn[-1], notes=[*drawn[-1].notes, *where])]


def _groups(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Results of the same configuration, whatever their backends."""
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.series[:-1], []).append(entry)
    return [*groups.values()]


def _table(group: Sequence[Entry]) -> Table:
    backends = [*dict.fromkeys(entry.backend for entry in group)]
    rows = []
    for path in dict.fromkeys(entry.path for entry in group):
        of_result = {entry.backend: entry for entry in group if entry.path == path}
        first = next(iter(of_result.values()))
        epochs = (_epoch(of_result[name]) if name in of_result else NOTHING for name in backends)
        when = Cell(first.written[:TO_THE_MINUTE], first.revision)
        rows.append([when, *epochs, _quality([*of_result.values()]), Cell(_place(path))])
    metrics = dict.fromkeys(entry.metric for entry in group if entry.metric)
    return Table(
        ["written", *backends, f"test {'/'.join(metrics) or 'metric'}", "result"],
        rows,
        title=f"{group[0].title}: {units.counted(len(rows), group[0].kind)}",
        prose=(0, len(backends) + 2),
    )


def _place(path: str) -> str:
    """The result as `gnnbench report` takes it, as seen from the working directory if it lies below."""
    place = Path(path)
    place = place.parent if place.name in OF_FOLDERS else place
    with suppress(ValueError):
        return str(place.relative_to(Path.cwd()))
    return str(place)


def _epoch(entry: Entry) -> Cell:
    return Cell(units.seconds(entry.epoch_s), units.interval(units.seconds, entry.low, entry.high))


def _quality(of_result: Sequence[Entry]) -> Cell:
    """The lowest and the highest of all backends."""
    values = sorted({f"{entry.test:.4f}" for entry in of_result if entry.test is not None})
    return Cell("–".join(dict.fromkeys((values[0], values[-1])))) if values else NOTHING
