"""Datasets as tables: all with their place, the facts of one of them, and what was written of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report.tables import Cells, Table, facts

if TYPE_CHECKING:
    from pathlib import Path

    from gnnbench.datasets import Offer, Roots
    from gnnbench.datasets._describe import DatasetInfo
    from gnnbench.datasets.mapped import Header
    from gnnbench.partition.part import Partition

Fact = tuple[str, str | int, str]  # a name, a value and a remark


def listing(offers: Sequence[Offer], where: Roots) -> Table:
    """Every dataset on offer."""
    return Table.of(
        map(_offer, offers),
        notes=[
            "Here: on disk already, or drawn when asked for as synthetic ones are.",
            f"Data root: {where.raw}; cache: {where.cache}",
            "An undirected edge counts twice. Any other file, OGB or PyG dataset: see docs/data.md.",
        ],
        prose=(0, 1, 5),
    )


def info(about: DatasetInfo) -> Table:
    """One dataset."""
    synthetic = [f"Synthetic, not real data: {', '.join(about.synthetic_parts)}"] if about.synthetic_parts else []
    return facts(_facts(about), title=about.name, notes=[*synthetic, *about.notes])


def arrays(header: Header, folder: Path) -> Table:
    """The files of a graph that was written as arrays."""
    rows = (
        {"array": name, "type": array.dtype, "shape": str(array.shape), "size": units.size(array.bytes)}
        for name, array in header.arrays.items()
    )
    total = units.size(sum(array.bytes for array in header.arrays.values()))
    notes = [f"{folder} is a dataset now, of {total}"]
    return Table.of(rows, title=header.name, notes=notes, prose=(0, 1, 2))


def _facts(facts: DatasetInfo) -> Iterator[Fact]:
    many = facts.graphs > 1
    nodes, edges = (f"; {_quantiles(each)} in a graph" * many for each in (facts.graph_nodes, facts.graph_edges))
    symmetry = (
        "symmetric: every edge has its reverse" if facts.symmetric else "directed: some edges lack their reverse"
    )
    loops = f"{units.count(facts.self_loops)} self-loops, {units.count(facts.duplicate_edges)} duplicates"
    if many:
        yield "graphs", facts.graphs, ""
    yield "nodes", facts.nodes, f"{units.count(facts.isolated_nodes)} isolated{nodes}"
    for kind, one in facts.node_types.items():
        yield f"  {kind}", one.nodes, f"{one.features} {'trained' if one.trained else 'features'} each"
    yield "edges", facts.edges, f"{symmetry}; {loops}{edges}"
    for relation, count in facts.edge_types.items():
        yield f"  {relation}", count, ""
    yield "in-degree", units.digits(facts.degree_mean), f"mean; {_quantiles(facts.degree_quantiles)}"
    kind = "categories, " * facts.categories
    of_edges = f"; {units.count(facts.edge_features)} of an edge" if facts.edge_features else ""
    density = f"{facts.feature_density:.1%} not zero"
    if facts.node_types:
        density = f"of {facts.target_type}; of all types {density}"
    elif facts.embedding_bytes:
        density = "trained vectors"
    yield "features", facts.features, f"{kind}{density}{of_edges}"
    yield from (_links if facts.target == "link" else _targets)(facts)
    yield "metric", facts.metric, ""
    index, x, trained = facts.edge_index_bytes, facts.feature_bytes, facts.embedding_bytes
    vectors = f", trained vectors {units.size(trained)}" if trained else ""
    parts = f"edge_index {units.size(index)}, features {units.size(x)}{vectors}"
    yield "memory", units.size(index + x + trained), parts


def _links(facts: DatasetInfo) -> Iterator[Fact]:
    types = f"of {units.count(facts.relations)} types" if facts.relations > 1 else ""
    yield "links", facts.outputs, types
    yield from _split(facts, facts.outputs, "links")
    each = "for each test link" if facts.metric == "mrr" else "in one list for all test links"
    yield "negatives", facts.negatives, each


def _targets(facts: DatasetInfo) -> Iterator[Fact]:
    many = facts.graphs > 1
    noun = facts.target_type or ("node" if facts.per_node else "graph")
    targets = {"class": "classes", "labels": "labels", "value": "values"}[facts.target]
    ends = dict.fromkeys(units.count(end(facts.class_counts)) for end in (min, max) if facts.class_counts)
    sizes = f", {'–'.join(ends)} {noun}s each" if ends else ""
    each = f"{'one for' if facts.target == 'class' else 'for'} every {noun}"
    yield targets, facts.outputs, f"{each}{sizes}, {units.count(facts.missing_targets)} missing"
    of, members = (facts.graphs, "graphs") if many else (facts.nodes, "nodes")
    if facts.node_types:
        of, members = facts.node_types[noun].nodes, f"{noun}s"
    yield from _split(facts, of, members)


def _split(facts: DatasetInfo, of: int, members: str) -> Iterator[Fact]:
    for split in ("train", "val", "test"):
        count = getattr(facts, split)
        yield split, count, f"{count / of:.1%} of the {members}"


def _quantiles(counts: Mapping[str, int]) -> str:
    return f"quantiles: {', '.join(f'{float(share):.0%} {units.count(value)}' for share, value in counts.items())}"


def _offer(offer: Offer) -> Cells:
    known = {"graphs": offer.graphs, "nodes": offer.nodes, "edges": offer.edges}
    source = offer.source.removesuffix("_graphs")
    return {
        "dataset": offer.spec,
        "source": source,
        **{name: "" if value is None else value for name, value in known.items()},
        "here": "yes" if offer.on_disk or source == "synthetic" else "no",
    }


def parts(partition: Partition, folder: Path, notes: Sequence[str]) -> Table:
    """List the parts that were written."""
    every = partition.parts
    sizes = [
        (part.nodes, part.edges, part.halo, sum(each.bytes for each in part.arrays.values())) for part in every
    ]
    total = [sum(column) for column in zip(*sizes, strict=True)]
    rows: list[Cells] = [
        {
            "part": str(name),
            "nodes": nodes,
            "edges": edges,
            "halo": halo,
            "halo share": f"{halo / partition.num_nodes:.1%}",
            "size": units.size(size),
        }
        for name, (nodes, edges, halo, size) in [*enumerate(sizes), ("all", total)]
    ]
    loads = [part.nodes + part.edges for part in every]
    return Table.of(
        rows,
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
