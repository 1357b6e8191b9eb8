"""A benchmark of sampling as a table: milliseconds of a batch, edges per second, and how peers compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report import figures
from gnnbench.report.run import machine
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from gnnbench.benchmarks.sample import SampleBench


def table(bench: SampleBench) -> Table:
    """One line per batch size, part and sampler."""
    rows = [
        [
            Cell(units.count(row.batch_size)),
            Cell(row.part),
            Cell(row.implementation),
            *figures.batch(row, row.edges),
            *(figures.ratio(row.ratio.get(peer)) for peer in bench.peers),
        ]
        for row in bench.rows
    ]
    heading = ["seeds in\na batch", "part", "sampler", "time of\na batch", "edges\na second"]
    heading += [f"speedup\nvs {peer}" for peer in bench.peers]
    named = {f"{row.implementation}: {row.reason}": None for row in bench.rows if row.reason}
    notes = [
        *named,
        "Checked before: every edge of ours is one of the graph, and none comes twice. Speedups of sampling are "
        "of the time for an edge, as DGL samples nodes again that were sampled before",
        f"Fanouts {', '.join(map(str, bench.fanouts))}; {units.counted(bench.threads, 'thread')}; "
        f"{units.count(bench.nodes)} nodes, {units.count(bench.edges)} edges, {bench.features} features",
        *machine(bench.environment),
    ]
    return Table(heading, rows, title=f"Sampled neighbourhoods of {bench.graph}", notes=notes)
