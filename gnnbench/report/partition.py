"""Partitions as tables: the parts of a graph, each with its halo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from pathlib import Path

    from gnnbench.partition.files import Partition


def parts(partition: Partition, folder: Path, notes: Sequence[str]) -> Table:
    """List the parts that were written."""
    every = partition.parts
    rows = [
        (str(rank), part.nodes, part.edges, part.halo, sum(array.bytes for array in part.arrays.values()))
        for rank, part in enumerate(every)
    ]
    total = ("all", *(sum(column) for column in list(zip(*rows, strict=True))[1:]))
    loads = [part.nodes + part.edges for part in every]
    return Table(
        ("part", "nodes", "edges", "halo", "halo share", "size"),
        [
            [
                Cell(name),
                *(Cell(units.count(count)) for count in (nodes, edges, halo)),
                Cell(f"{halo / partition.num_nodes:.1%}"),
                Cell(units.size(size)),
            ]
            for name, nodes, edges, halo, size in [*rows, total]
        ],
        title=f"{partition.name} in {units.counted(len(every), f'{partition.method} part')}",
        notes=[
            f"Balance: nodes and edges of the largest part are {_balance(loads)} the mean, edges alone "
            f"{_balance([part.edges for part in every])}.",
            "Halo: nodes of other parts from which edges come, and their share of all nodes.",
            *partition.notes,
            *notes,
            f"{folder} holds the parts now; each process reads its own.",
        ],
    )


def _balance(loads: Sequence[int]) -> str:
    return units.ratio(max(loads) * len(loads) / sum(loads)) if sum(loads) else "1.00x"
