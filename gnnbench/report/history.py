"""The index of results as a table, and epochs over time as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gnnbench import units
from gnnbench.report.plots import Line, Panel
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from gnnbench.history import Entry


def table(entries: Sequence[Entry]) -> Table:
    """One row per backend of every result, the newest last."""
    rows = [
        [
            Cell(entry.written, entry.revision),
            Cell(entry.title, entry.path),
            Cell(entry.backend),
            _epoch(entry),
            Cell("–" if entry.test is None else f"{entry.test:.4f}", entry.metric),
        ]
        for entry in entries
    ]
    machines = dict.fromkeys(entry.machine for entry in entries if entry.machine)
    notes = [f"Machine: {machine}" for machine in machines] or ["No run or comparison of this machine is known"]
    heading = ("written", "run", "backend", "epoch", "test")
    return Table(heading, rows, title=units.counted(len(rows), "result"), notes=notes, prose=(0, 1, 2))


def records(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Every entry with its names."""
    return [entry._asdict() for entry in entries]


def panel(entries: Sequence[Entry]) -> Panel:
    """The median epoch of every configuration and backend, in their order."""
    timed = [(place, entry) for place, entry in enumerate(entries, start=1) if entry.epoch_s is not None]
    unit, scale = units.scale(max((entry.epoch_s or 0.0 for _, entry in timed), default=1.0))
    lines: dict[str, list[tuple[float, float]]] = {}
    for place, entry in timed:
        lines.setdefault(f"{entry.title}, {entry.backend}", []).append((place, (entry.epoch_s or 0.0) / scale))
    return Panel("", "result, as in the table", f"epoch, {unit}", [Line(*line) for line in lines.items()])


def _epoch(entry: Entry) -> Cell:
    if entry.epoch_s is None or entry.low is None or entry.high is None:
        return Cell("–")
    return Cell(units.seconds(entry.epoch_s), units.seconds(entry.low, entry.high))
