"""Datasets as tables: all with their place, and the facts of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from pathlib import Path

    from gnnbench.datasets import Roots
    from gnnbench.datasets._describe import DatasetInfo, OfferRecord
    from gnnbench.datasets._describe_graphs import GraphsInfo, Spread
    from gnnbench.datasets._maps import Header

BAR = 40  # characters of the longest bar


def listing(offers: Sequence[OfferRecord], where: Roots) -> Table:
    """Every dataset on offer."""
    return Table(
        ("dataset", "source", "graphs", "nodes", "edges", "here"),
        [_offer(offer) for offer in offers],
        notes=[
            "Here: on disk already, or drawn when asked for as synthetic ones are.",
            f"Data root: {where.raw}; cache: {where.cache}",
            "An undirected edge counts twice. Any other file, OGB or PyG dataset: see docs/data.md.",
        ],
        prose=(0, 1, 5),
    )


def info(facts: DatasetInfo | GraphsInfo) -> Table:
    """One dataset."""
    from gnnbench.datasets._describe_graphs import GraphsInfo

    made_up = [f"Synthetic, not real data: {', '.join(facts.made_up)}"] if facts.made_up else []
    rows = _facts_of_graphs(facts) if isinstance(facts, GraphsInfo) else _facts(facts)
    return Table(
        ("", "", ""),
        [[Cell(name), Cell(value), Cell(detail)] for name, value, detail in rows],
        title=facts.name,
        notes=[*made_up, *facts.notes],
        prose=(0, 2),
    )


def arrays(header: Header, folder: Path) -> Table:
    """The files of a graph that was written as arrays."""
    sizes = header.arrays.items()
    return Table(
        ("array", "type", "shape", "size"),
        [
            [Cell(name), Cell(array.dtype), Cell(str(array.shape)), Cell(units.size(array.bytes))]
            for name, array in sizes
        ],
        title=header.name,
        notes=[f"{folder} is a dataset now, of {units.size(sum(array.bytes for _, array in sizes))}"],
        prose=(0, 1, 2),
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
    yield "classes", units.count(facts.classes), f"{sizes}, {units.count(facts.unlabelled)} nodes unlabelled"
    yield from _parts(facts, facts.nodes, "nodes")
    quantiles = (f"{float(share):.0%} {units.count(value)}" for share, value in facts.degree_quantiles.items())
    yield "in-degree", units.digits(facts.degree_mean), f"mean; quantiles: {', '.join(quantiles)}"
    most = max(bar.nodes for bar in facts.degree_histogram)
    for bar in facts.degree_histogram:
        span = units.count(bar.low) if bar.low == bar.high else f"{units.count(bar.low)}–{units.count(bar.high)}"
        yield f"  {span}", units.count(bar.nodes), "█" * round(BAR * bar.nodes / most)


def _facts_of_graphs(facts: GraphsInfo) -> Iterator[tuple[str, str, str]]:
    yield "graphs", units.count(facts.graphs), f"{units.count(facts.edgeless_graphs)} without edges"
    yield "nodes", units.count(facts.nodes.total), f"{_per_graph(facts.nodes)} in a graph"
    yield "edges", units.count(facts.edges.total), f"{_per_graph(facts.edges)} in a graph"
    yield "in-degree", units.digits(facts.degree_mean), f"mean; at most {units.count(facts.degree_max)}"
    kind = "categories" if facts.categories else "numbers"
    edges = f", and {units.count(facts.edge_features)} of an edge" if facts.edge_features else ""
    yield "features", units.count(facts.features), f"{kind} of a node{edges}"
    noun = "node" if facts.per_node else "graph"
    targets = {"class": "classes", "labels": "labels", "value": "values"}[facts.target]
    counts = facts.class_counts
    ends = dict.fromkeys(units.count(end(counts)) for end in (min, max)) if counts else {}
    sizes = f", {' to '.join(ends)} {noun}s each" if ends else ""
    missing = f"{sizes}, {units.count(facts.missing_targets)} missing"
    yield (
        targets,
        units.count(facts.outputs),
        f"{'one for' if facts.target == 'class' else 'for'} every {noun}{missing}",
    )
    yield from _parts(facts, facts.graphs, "graphs")


def _parts(facts: DatasetInfo | GraphsInfo, of: int, noun: str) -> Iterator[tuple[str, str, str]]:
    """Shares of its split, metric and memory."""
    for part in ("train", "val", "test"):
        members = getattr(facts, part)
        yield part, units.count(members), f"{members / of:.1%} of the {noun}"
    yield "metric", facts.metric, ""
    edges, x = facts.edge_index_bytes, facts.feature_bytes
    yield "memory", units.size(edges + x), f"edge_index {units.size(edges)}, features {units.size(x)}"


def _per_graph(spread: Spread) -> str:
    low, median, high = (units.count(spread.quantiles[share]) for share in ("0", "0.5", "1"))
    return f"{low} to {high}, median {median}, mean {units.digits(spread.mean)}"


def _offer(offer: OfferRecord) -> list[Cell]:
    counts = [_count(value) for value in (offer.graphs, offer.nodes, offer.edges)]
    source = offer.source.removesuffix("_graphs")
    here = offer.on_disk or source == "synthetic"
    return [Cell(offer.spec), Cell(source), *counts, Cell("yes" if here else "no")]


def _count(value: int | None) -> Cell:
    return Cell("" if value is None else units.count(value))
