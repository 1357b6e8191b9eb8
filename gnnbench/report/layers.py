"""A benchmark of layers as a table: how each ran, and its times and memory beside PyG's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report import figures
from gnnbench.report.run import machine
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from gnnbench.benchmarks.layers import LayerBench, LayerRow

PYG = "pyg"


def table(bench: LayerBench) -> Table:
    """One line per layer and width, which is in the title where all have one."""
    widths = {row.width for row in bench.rows}
    several = len(widths) > 1
    heading = ["layer", *["width"] * several, "way", "forward,\npyg", f"forward,\n{bench.backend}", "speedup"]
    heading += ["step,\npyg", f"step,\n{bench.backend}", "speedup", "memory,\npyg", f"memory,\n{bench.backend}"]
    cases: dict[tuple[str, int], dict[tuple[str, str], LayerRow]] = {}
    for row in bench.rows:
        cases.setdefault((row.conv, row.width), {})[row.direction, row.implementation] = row
    rows = [
        [Cell(conv), *[Cell(units.count(width))] * several, *_figures(by_name, bench.backend)]
        for (conv, width), by_name in cases.items()
    ]
    title = f"Layers on {bench.graph}" + (f", width {min(widths)}" if len(widths) == 1 else "")
    return Table(heading, rows, title=title, notes=[*_notes(bench)], prose=(0, heading.index("way")))


def _figures(rows: dict[tuple[str, str], LayerRow], ours: str) -> Iterator[Cell]:
    yield Cell(rows["step", ours].way or rows["forward", ours].way or "–")
    for direction in ("forward", "step"):
        yield from (figures.time(rows[direction, name]) for name in (PYG, ours))
        yield figures.ratio(rows[direction, ours].ratio.get(PYG))
    for name in (PYG, ours):
        nbytes = rows["step", name].memory_increase_bytes
        yield figures.NOTHING if nbytes is None else Cell(units.size(nbytes))


def _notes(bench: LayerBench) -> Iterator[str]:
    yield from dict.fromkeys(f"{row.conv}: {row.reason}" for row in bench.rows if row.reason)
    yield (
        "Checked before and after timing: outputs, and every gradient of inputs and parameters, are PyG's to "
        "within 1e-4 of their root mean square, or at most twice as far from results in float64 as PyG's own"
    )
    yield "Memory: above what was there before a step, which is a forward with its backward"
    yield (
        f"Graph: {units.count(bench.nodes)} nodes, {units.count(bench.edges)} edges; "
        f"{units.counted(bench.threads, 'thread')}"
    )
    yield from machine(bench.environment)
