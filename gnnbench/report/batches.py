"""Benchmarks of batches as tables: graphs put together, sampled neighbourhoods, and pairs that are no edges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gnnbench import units
from gnnbench.report import figures
from gnnbench.report.run import machine
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from gnnbench.benchmarks.batches import BatchBench
    from gnnbench.benchmarks.collate import CollateBench, LoaderRow
    from gnnbench.benchmarks.negatives import NegativesBench
    from gnnbench.benchmarks.sample import SampleBench


def table(bench: Any) -> Table:
    """The table of a benchmark of one of them."""
    kinds: dict[str, Callable[[Any], Table]] = {"collate": _collate, "sample": _sample, "negatives": _negatives}
    return kinds[bench.op](bench)


def _collate(bench: CollateBench) -> Table:
    """One line per batch size: our time per graph, and every peer's."""
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
    notes = [
        *(f"{row.implementation}, batches of {row.batch_size}: {row.reason}" for row in bench.rows if row.reason),
        "Checked before and after timing: x, y, ptr and edge_index of batches are PyG's to the last bit, and rows "
        "and transpose are those of its edge_index",
        f"{ours} puts batches together in one thread, with rows and transpose; PyG's DataLoader has no workers, "
        "and has read every graph before. Edge features are left out",
        f"Graphs: {units.count(bench.graphs)}, with {units.count(bench.nodes)} nodes, {units.count(bench.edges)} "
        f"edges and {bench.features} features in {bench.dtype}",
        *machine(bench.environment),
    ]
    return Table(heading, rows, title=f"Batches of {bench.graph}", notes=notes)


def _sample(bench: SampleBench) -> Table:
    """One line per batch size, part and sampler: time of a batch, edges per second, and how peers compare."""
    notes = [
        "Checked before: every edge of ours is one of the graph, and none comes twice. Speedups of sampling are "
        "of the time for an edge, as DGL samples nodes again that were sampled before",
        f"Fanouts {', '.join(map(str, bench.fanouts))}; {units.counted(bench.threads, 'thread')}; "
        f"{units.count(bench.nodes)} nodes, {units.count(bench.edges)} edges, {bench.features} features",
    ]
    return _by_row(
        bench,
        f"Sampled neighbourhoods of {bench.graph}",
        ["seeds in\na batch", "part", "sampler", "time of\na batch", "edges\na second"],
        lambda row: (units.count(row.batch_size), row.part, row.implementation),
        lambda row: row.edges,
        notes,
    )


def _negatives(bench: NegativesBench) -> Table:
    """One line per batch size and implementation: time of a batch, pairs per second, and how peers compare."""
    possible = bench.nodes**2 - bench.excluded
    notes = [
        "Checked before: a batch has its number of pairs, none of them an edge or a self-loop",
        "The graph was sorted before; PyG looks at its edge_index in every batch, and draws no pair twice",
        f"{units.count(bench.nodes)} nodes, {units.count(bench.edges)} edges, {possible / bench.nodes**2:.4%} of "
        f"all pairs can be drawn; {units.counted(bench.threads, 'thread')}",
    ]
    return _by_row(
        bench,
        f"Negatives of {bench.graph}",
        ["pairs in\na batch", "drawn by", "time of\na batch", "pairs\na second"],
        lambda row: (units.count(row.batch_size), row.implementation),
        lambda row: row.batch_size,
        notes,
    )


def _by_row(
    bench: BatchBench,
    title: str,
    heading: Sequence[str],
    names: Callable[[Any], Iterable[str]],
    members: Callable[[Any], float | None],
    notes: Sequence[str],
) -> Table:
    """One line per row: its names, the time of a batch, its `members` a second, and how peers compare."""
    rows = [
        [
            *map(Cell, names(row)),
            *_batch(row, members(row)),
            *(figures.ratio(row.ratio.get(peer)) for peer in bench.peers),
        ]
        for row in bench.rows
    ]
    reasons = dict.fromkeys(f"{row.implementation}: {row.reason}" for row in bench.rows if row.reason)
    heading = [*heading, *(f"speedup\nvs {peer}" for peer in bench.peers)]
    return Table(heading, rows, title=title, notes=[*reasons, *notes, *machine(bench.environment)])


def _batch(row: Any, size: float | None) -> list[Cell]:
    """The time of a batch from that of one of its `size` members, and millions of these a second.

    Without a size the row's time is that of a whole batch.
    """
    if row.time_s is None:
        return [figures.time(row), figures.NOTHING]
    each, members = row.time_s, size or 1.0
    interval = units.interval(units.seconds, each.low * members, each.high * members)
    rate = f"{1e-6 / each.median:.3g} M" if size else "–"
    return [Cell(units.seconds(each.median * members), interval), Cell(rate)]
