"""Suites as a table and a page: ours, its share of the bandwidth, and each fastest peer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter

from gnnbench import units
from gnnbench.benchmarks import records as schema
from gnnbench.benchmarks.records import Row
from gnnbench.kinds import ResultKind
from gnnbench.kinds.bench import measured
from gnnbench.kinds.run import machine
from gnnbench.report.page import Grid, Section
from gnnbench.report.tables import NOTHING, Cell, Cells, Table, ended, ratio_cell, row_time
from gnnbench.stats import grouped


class Suite(ResultKind, schema.Suite):
    """A suite of benchmarks; a line of its frame is an implementation on one case."""

    mark = "suite"
    file = "suite.json"


def table(suite: schema.Suite) -> Table:
    """One line per case and direction that was run; what ended without figures is counted in the notes.

    Epochs with recorded steps have a line of their own, beside all of PyG's; the others are beside its eager ones.
    """
    cases = grouped(suite.rows, attrgetter("graph", "op", "width", "heads", "dtype", "direction"))
    ran = [case for case in cases.values() if any(row.status not in ("pending", "not run") for row in case)]
    rows = [_line(case, ours) for case in ran for ours in case if ours.backend == suite.backend]
    return Table.of(rows, title=title(suite), notes=[*_notes(suite)], prose=(0, 3))


def section(record: schema.Suite) -> Section:
    """Tell whether ours is right, and how fast it is beside its fastest peers."""
    question = f"Is everything on {record.backend} right, and how fast is it beside its fastest peers?"
    ours = [row for row in record.rows if row.backend == record.backend]
    words = ["suite", record.suite, "--scale", record.scale]
    made = measured(record, ours, table(record), words, question=question, remark="")
    by_status = Grid(replace(counts(record), title="Rows by status"))
    made = replace(made, grids=[*made.grids, by_status])
    if record.caveat:
        made = replace(made, tone="bad", verdict=[f"These times mean nothing: {record.caveat}.", *made.verdict])
    return made


def title(suite: schema.Suite) -> str:
    """The suite and the device."""
    return f"Suite {suite.suite} on {suite.device}" + (f" ({suite.caveat})" if suite.caveat else "")


def progress(record: schema.Suite, step: str) -> tuple[str, Table]:
    """The number of rows by status, and what runs now."""
    return f"{title(record)}\n{step}", counts(record)


def counts(suite: schema.Suite) -> Table:
    """The number of rows by status."""
    rows = Counter(row.status for row in suite.rows)
    return Table.of({"status": status, "rows": count} for status, count in rows.items())


def _line(case: list[Row], ours: Row) -> Cells:
    recorded = ":" in ours.implementation
    peers = [row for row in case if row.backend != ours.backend and (recorded or ":" not in row.implementation)]
    timed = [row for row in peers if row.time_s]
    peer = min(timed, key=lambda row: row.time_s.median if row.time_s else 0.0, default=None)
    share = ours.roofline_fraction
    weighed = [row.memory_increase_bytes for row in timed if row.memory_increase_bytes]
    memory = [increase / ours.memory_increase_bytes for increase in weighed] if ours.memory_increase_bytes else []
    return {
        "graph, op, size": Cell(f"{ours.graph}, {ours.op}", _size(ours)),
        ours.backend: row_time(ours),
        "of copy\nbandwidth": f"{share:.0%}" if share else NOTHING,
        "fastest\npeer": _peer(peer, peers),
        f"{ours.backend} vs\nit": ratio_cell(ours.ratio.get(peer.implementation) if peer else None),
        "memory of\npeers": units.ratio(*dict.fromkeys((min(memory), max(memory)))) if memory else NOTHING,
    }


def _size(row: Row) -> str:
    heads = f", {units.counted(row.heads, 'head')}" if row.heads > 1 else ""
    options = row.implementation.partition(":")[2]
    return f"{row.width}{heads}, {row.dtype}, {row.direction}" + (f", {options}" if options else "")


def _peer(fastest: Row | None, peers: list[Row]) -> Cell:
    if fastest is None or fastest.time_s is None:
        return Cell(", ".join(dict.fromkeys(ended(row.status) for row in peers)))
    return Cell(units.seconds(fastest.time_s.median), fastest.implementation)


def _notes(suite: schema.Suite) -> Iterator[str]:
    if suite.caveat:
        yield f"All rows: {suite.caveat}"
    reasons = Counter((row.implementation, row.status, row.reason) for row in suite.rows if row.reason)
    for (name, status, reason), count in reasons.items():
        yield f"{name}: {ended(status)} in {units.counted(count, 'row')}: {reason}"
    yield "Checked before timing: ops against float64, epochs against PyG's logits and gradients"
    if suite.ceilings:
        yield (
            f"Copy bandwidth: {suite.ceilings.stream_bytes_per_s / 1e9:.0f} GB/s read and written. The share is "
            "that of the time in which every tensor crosses the memory bus once"
        )
    yield "Memory: what one call takes on top, of the peers over ours; a backward counts with its forward"
    for name, size in suite.graphs.items():
        yield f"{name}: {size.nodes:,} nodes, {size.edges:,} edges, largest in-degree {size.max_degree:,}"
    yield from machine(suite.environment)
    yield f"Took {units.seconds(suite.spent_s)}"
