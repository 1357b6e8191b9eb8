"""A benchmark of negatives as a table: time of a batch, pairs per second, and how peers compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report import figures
from gnnbench.report.run import machine
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from gnnbench.benchmarks.negatives import NegativesBench


def table(bench: NegativesBench) -> Table:
    """One line per batch size and implementation."""
    rows = [
        [
            Cell(units.count(row.batch_size)),
            Cell(row.implementation),
            *figures.batch(row, row.batch_size),
            *(figures.ratio(row.ratio.get(peer)) for peer in bench.peers),
        ]
        for row in bench.rows
    ]
    heading = ["pairs in\na batch", "drawn by", "time of\na batch", "pairs\na second"]
    heading += [f"speedup\nvs {peer}" for peer in bench.peers]
    named = {f"{row.implementation}: {row.reason}": None for row in bench.rows if row.reason}
    possible = bench.nodes**2 - bench.excluded
    notes = [
        *named,
        "Checked before: a batch has its number of pairs, none of them an edge or a self-loop",
        "The graph was sorted before; PyG looks at its edge_index in every batch, and draws no pair twice",
        f"{units.count(bench.nodes)} nodes, {units.count(bench.edges)} edges, {possible / bench.nodes**2:.4%} of "
        f"all pairs can be drawn; {units.counted(bench.threads, 'thread')}",
        *machine(bench.environment),
    ]
    return Table(heading, rows, title=f"Negatives of {bench.graph}", notes=notes)
