"""Datasets as tables: all with their place, and the graph of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from gnnbench.datasets import Roots
    from gnnbench.datasets._describe import DatasetInfo, OfferRecord

BAR = 40  # characters of the longest bar


def listing(offers: Sequence[OfferRecord], where: Roots) -> Table:
    """Every dataset on offer."""
    return Table(
        ("dataset", "source", "nodes", "edges", "on disk"),
        [
            [Cell(offer.spec), Cell(offer.source), _count(offer.nodes), _count(offer.edges), _place(offer)]
            for offer in offers
        ],
        notes=[
            f"Data root: {where.raw}; cache: {where.cache}",
            "An undirected edge counts twice. Any other file, OGB or PyG dataset: see docs/data.md.",
        ],
        prose=(0, 1, 4),
    )


def info(facts: DatasetInfo) -> Table:
    """One dataset."""
    made_up = [f"Synthetic, not real data: {', '.join(facts.made_up)}"] if facts.made_up else []
    return Table(
        ("", "", ""),
        [[Cell(name), Cell(value), Cell(detail)] for name, value, detail in _facts(facts)],
        title=facts.name,
        notes=[*made_up, *facts.notes],
        prose=(0, 2),
    )


def _facts(facts: DatasetInfo) -> Iterator[tuple[str, str, str]]:
    symmetry = (
        "symmetric: every edge has its reverse" if facts.symmetric else "directed: some edges lack their reverse"
    )
    loops = f"{units.count(facts.self_loops)} self-loops, {units.count(facts.duplicate_edges)} duplicates"
    yield "nodes", units.count(facts.nodes), f"{units.count(facts.isolated_nodes)} isolated"
    yield "edges", units.count(facts.edges), f"{symmetry}; {loops}"
    labels = " (several per node)" if facts.multilabel else ""
    yield "features", units.count(facts.features), f"{facts.feature_density:.1%} not zero"
    smallest, largest = min(facts.class_counts, default=0), max(facts.class_counts, default=0)
    sizes = f"{units.count(smallest)} to {units.count(largest)} nodes each{labels}"
    yield (
        "classes",
        units.count(facts.classes),
        f"{sizes}, {units.count(facts.unlabelled)} nodes unlabelled",
    )
    for part in ("train", "val", "test"):
        nodes = getattr(facts, part)
        yield part, units.count(nodes), f"{nodes / facts.nodes:.1%} of the nodes"
    yield "metric", facts.metric, ""
    yield (
        "memory",
        units.size(facts.edge_index_bytes + facts.feature_bytes),
        (f"edge_index {units.size(facts.edge_index_bytes)}, features {units.size(facts.feature_bytes)}"),
    )
    quantiles = (f"{float(share):.0%} {units.count(value)}" for share, value in facts.degree_quantiles.items())
    yield "in-degree", units.digits(facts.degree_mean), f"mean; quantiles: {', '.join(quantiles)}"
    most = max(bar.nodes for bar in facts.degree_histogram)
    for bar in facts.degree_histogram:
        span = units.count(bar.low) if bar.low == bar.high else f"{units.count(bar.low)}–{units.count(bar.high)}"
        yield f"  {span}", units.count(bar.nodes), "█" * round(BAR * bar.nodes / most)


def _count(value: int | None) -> Cell:
    return Cell("" if value is None else units.count(value))


def _place(offer: OfferRecord) -> Cell:
    if offer.on_disk:
        return Cell("yes")
    return Cell("generated when asked for" if offer.source == "synthetic" else "no")
