"""Results over time as tables, and epochs over revisions as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report.plots import Line, Panel
from gnnbench.report.tables import NOTHING, Cell, Table

if TYPE_CHECKING:
    from gnnbench.history import Entry

SPREAD = 4.0  # largest epoch over the smallest, from which on an axis is logarithmic
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


def panels(entries: Sequence[Entry]) -> list[Panel]:
    """A picture per configuration: the median epoch of every result, with a line per backend, over revisions."""
    return [_panel(group) for group in _groups(entries)]


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


def _panel(entries: Sequence[Entry]) -> Panel:
    unit, scale = units.scale(max(entry.epoch_s for entry in entries))
    places = {path: float(place) for place, path in enumerate(dict.fromkeys(entry.path for entry in entries))}
    revisions = {places[entry.path]: entry.revision[:7] or entry.written[5:10] for entry in entries}
    lines: dict[str, list[tuple[float, float]]] = {}
    for entry in entries:
        lines.setdefault(entry.backend, []).append((places[entry.path], entry.epoch_s / scale))
    return Panel(
        f"{entries[0].title}, {units.counted(len(places), entries[0].kind)}",
        "revision, a point per result",
        f"epoch, {unit}",
        [Line(backend, points) for backend, points in lines.items()],
        {place: "" if revisions.get(place - 1) == name else name for place, name in revisions.items()},
        spread=SPREAD,
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
