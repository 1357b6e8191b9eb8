"""A benchmark of collation as a table: our time per graph, and every peer's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report import figures
from gnnbench.report.run import machine
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from gnnbench.benchmarks.collate import CollateBench, LoaderRow


def table(bench: CollateBench) -> Table:
    """One line per batch size."""
    ours = bench.backend
    peers = [peer for peer in bench.peers if peer != ours]
    sizes: dict[int, dict[str, LoaderRow]] = {}
    for row in bench.rows:
        sizes.setdefault(row.batch_size, {})[row.implementation] = row
    rows = [
        [
            Cell(units.count(size)),
            figures.time(by_name[ours]),
            *(
                cell
                for peer in peers
                for cell in (figures.time(by_name[peer]), figures.ratio(by_name[ours].ratio.get(peer)))
            ),
        ]
        for size, by_name in sizes.items()
    ]
    heading = ["graphs in\na batch", f"{ours}\nper graph"]
    heading += [text for peer in peers for text in (f"{peer}\nper graph", f"{ours} vs\n{peer}")]
    return Table(heading, rows, title=f"Batches of {bench.graph}", notes=[*_notes(bench)])


def _notes(bench: CollateBench) -> Iterator[str]:
    for name, size, reason in ((row.implementation, row.batch_size, row.reason) for row in bench.rows):
        if reason:
            yield f"{name}, batches of {size}: {reason}"
    yield (
        "Checked before and after timing: x, y, ptr and edge_index of batches are PyG's to the last bit, and rows "
        "and transpose are those of its edge_index"
    )
    yield (
        f"{bench.backend} puts batches together in one thread, with rows and transpose; PyG's DataLoader has no "
        "workers, and has read every graph before. Edge features are left out"
    )
    yield (
        f"Graphs: {units.count(bench.graphs)}, with {units.count(bench.nodes)} nodes, {units.count(bench.edges)} "
        f"edges and {bench.features} features in {bench.dtype}"
    )
    yield from machine(bench.environment)
