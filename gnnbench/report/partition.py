"""Partitions as tables: the parts of a graph, and what workers are predicted to hold and exchange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from pathlib import Path

    from gnnbench.partition.files import Partition
    from gnnbench.partition.plan import Estimate, Plan


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


def plan(result: Plan) -> Table:
    """List what every part takes, or for several numbers of parts the one that takes most."""
    by_parts = result.estimates
    several = len(by_parts) > 1 or result.modelled
    rows = (
        [(str(number), largest(each)) for number, each in by_parts.items()]
        if several
        else [(str(rank), each) for each_of in by_parts.values() for rank, each in enumerate(each_of)]
    )
    model = result.model
    how = (
        "Parts are modelled: random ones in which all nodes have the mean degree, an upper bound of halos."
        if result.modelled
        else "Parts were made and counted."
    )
    return Table(
        ("workers" if several else "part", "nodes", "edges", "halo", "memory", "exchange"),
        [[Cell(name), *_cells(each)] for name, each in rows],
        title=(
            f"Predicted, not run: {model['name']}, {model['layers']} layers of {model['hidden']}, on "
            f"{result.name} in {result.method} parts"
        ),
        notes=[
            f"{how} Per worker{', of the part that takes most' * (several and not result.modelled)}; exchange: "
            "bytes that it sends or receives in an epoch, whichever is more.",
            f"Memory includes {units.size(result.program_bytes)} of a process that has not read its part.",
        ],
    )


def largest(estimates: Sequence[Estimate]) -> Estimate:
    """The largest of every quantity over all parts, which an epoch waits for."""
    fields = type(estimates[0]).model_fields
    return type(estimates[0])(**{name: max(getattr(each, name) for each in estimates) for name in fields})


def _cells(each: Estimate) -> list[Cell]:
    counts = [Cell(units.count(count)) for count in (each.nodes, each.edges, each.halo)]
    sizes = [Cell(units.size(size)) for size in (each.memory_bytes, each.exchange_bytes)]
    return [*counts, *sizes]


def _balance(loads: Sequence[int]) -> str:
    return units.ratio(max(loads) * len(loads) / sum(loads)) if sum(loads) else "1.00x"
