"""A benchmark of one op as a table: ours, its share of the machine's ceilings, and every peer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gnnbench import units
from gnnbench.report import figures
from gnnbench.report.figures import NOTHING
from gnnbench.report.run import machine
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from gnnbench.benchmarks.records import Bench, Row
    from gnnbench.report.plots import Panel

BF16 = "-bf16"  # after the name of a backend that gathers in it
GATHERED = "edges x width x 4 bytes over time, GB/s"


def table(bench: Bench) -> Table:
    """One line per case and direction."""
    absent = ("unsupported", "unavailable")  # everywhere, so that the reason below the table is enough
    ran = {row.implementation for row in bench.rows if row.status not in absent}
    peers = [peer for peer in bench.peers if peer != bench.backend and peer in ran]
    heading = [
        _across(bench),
        bench.backend,
        "speed" if any(row.shape for row in bench.rows) else "gathers",
        "of\nceiling",
        *(text for peer in peers for text in _heading(peer, bench.backend)),
    ]
    rows = [
        [
            Cell(_case(ours, bench.op)),
            _time(ours),
            _speed(ours),
            Cell(f"{ours.roofline_fraction:.0%}") if ours.roofline_fraction else NOTHING,
            *(cell for peer in peers for cell in _beside(case[peer], ours)),
        ]
        for case in _cases(bench)
        for ours in [case[bench.backend]]
    ]
    return Table(heading, rows, title=title(bench), notes=[*_notes(bench)])


def progress(record: Bench, step: str) -> tuple[str, Table]:
    """The table as far as it is known, and what runs now."""
    return f"{title(record)}\n{step}", table(record)


def title(bench: Bench) -> str:
    """The op and the graph."""
    return (
        f"{bench.op}{' with edge values' if bench.weighted else ''}{f' on {bench.graph}' if bench.graph else ''}"
    )


def panels(bench: Bench) -> list[Panel]:
    """Speed against width or size, one line per implementation; one panel per direction and number of heads."""
    from gnnbench.report.plots import Line, Panel

    lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in bench.rows:
        heads = f", {row.heads} heads" if row.heads > 1 and bench.op != "edge_softmax" else ""
        of_panel = lines.setdefault(row.direction + heads, {})
        if row.shape and row.time_s:
            size = math.prod(row.shape)
            of_panel.setdefault(row.implementation, []).append((size, size / row.time_s.median / 1e9))
        elif row.gather_bytes_per_s:
            of_panel.setdefault(row.implementation, []).append((row.width, row.gather_bytes_per_s / 1e9))
    across = _across(bench)
    sized = across == "shape"
    across, up = ("product of all sizes", "that over time, G/s") if sized else (across, GATHERED)
    return [
        Panel(name, across, up, [Line(*line) for line in of_panel.items()]) for name, of_panel in lines.items()
    ]


def _cases(bench: Bench) -> Iterator[dict[str, Row]]:
    cases: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in bench.rows:
        cases.setdefault((*row.shape, row.heads, row.width, row.direction), {})[row.implementation] = row
    yield from cases.values()


def _across(bench: Bench) -> str:
    """Return what cases differ in."""
    return "shape" if any(row.shape for row in bench.rows) else "heads" if bench.op == "edge_softmax" else "width"


def _speed(row: Row) -> Cell:
    if row.flop_per_s:
        return Cell(f"{row.flop_per_s / 1e9:.0f} GFLOP/s")
    return Cell(f"{row.gather_bytes_per_s / 1e9:.1f} GB/s") if row.gather_bytes_per_s else NOTHING


def _case(row: Row, op: str) -> str:
    heads = f", {row.heads} heads" if row.heads > 1 and op != "edge_softmax" else ""
    size = "x".join(map(str, row.shape)) or f"{row.width}{heads}"
    return f"{size}{', backward' if row.direction == 'backward' else ''}"


def _heading(peer: str, ours: str) -> tuple[str, ...]:
    return (peer, f"{peer}\nvs {ours}", "error") if peer == ours + BF16 else (peer, f"{ours} vs\n{peer}")


def _beside(row: Row, ours: Row) -> tuple[Cell, ...]:
    """A peer's time and what ours gains; of our own bfloat16 what it gains, and its error."""
    if row.backend != ours.backend:
        return _time(row), figures.ratio(ours.ratio.get(row.implementation))
    return (
        _time(row),
        figures.ratio(row.ratio.get(ours.implementation)),
        NOTHING if row.error is None else Cell(f"{row.error:.1e}"),
    )


def _time(row: Row) -> Cell:
    return NOTHING if row.status == "pending" else figures.time(row)


def _notes(bench: Bench) -> Iterator[str]:
    remarks: dict[tuple[str, str], list[Row]] = {}
    for row in bench.rows:
        if row.reason:
            remarks.setdefault((row.implementation, row.reason), []).append(row)
    for (name, reason), concerned in remarks.items():
        everywhere = len(concerned) == sum(row.implementation == name for row in bench.rows)
        where = "" if everywhere else f" ({'; '.join(_case(row, bench.op) for row in concerned)})"
        yield f"{name}{where}: {reason}"
    for name in dict.fromkeys(row.implementation for row in bench.rows if row.rounds and row.error is not None):
        yield (
            f"{name}: features are rounded to bfloat16 when they are gathered, and accumulated in float32; its "
            "error is the largest difference from float64, over the entry itself plus the root mean square of all"
        )
    rows = units.count(bench.checked_rows or 0)
    sampled = f"{rows} of its rows" if bench.size and bench.checked_rows != bench.size.nodes else "all of its rows"
    yield f"Checked before timing: every result against float64 on {sampled}"
    yield from _limits(bench)
    yield from machine(bench.environment)
    if bench.versions:
        yield "Peers: " + ", ".join(f"{name} {version}" for name, version in bench.versions.items())


def _limits(bench: Bench) -> Iterator[str]:
    """The ceilings that shares are of, and the graph."""
    size, ceilings = bench.size, bench.ceilings
    if ceilings and (size is None or ceilings.gather_bytes_per_s):
        other = ""
        if size and ceilings.gather_bytes_per_s:
            other = f", {ceilings.gather_bytes_per_s / 1e9:.0f} GB/s gathered from the L2 cache"
        elif ceilings.flop_per_s and any(row.flop_per_s for row in bench.rows):
            other = f", {ceilings.flop_per_s / 1e9:.0f} GFLOP/s in products"
        yield (
            f"Ceilings of this machine: {ceilings.stream_bytes_per_s / 1e9:.1f} GB/s streamed from memory{other}. "
            "The share is that of the time which the slower of both allows, every tensor crossing the bus once; "
            "it can pass 100% where tensors stay in the caches"
        )
    if size:
        yield (
            f"Graph: {units.count(size.nodes)} nodes, {units.count(size.edges)} edges, largest in-degree "
            f"{units.count(size.max_degree)}, {'symmetric' if size.symmetric else 'not symmetric'}"
        )
