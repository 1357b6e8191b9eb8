"""A plan: what every worker would take, for a graph that is read or for one that is known by its size alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.config import Run
from gnnbench.datasets import NodeDataset, Roots, ogb
from gnnbench.errors import ConfigError
from gnnbench.graph import Graph
from gnnbench.graph.part import LEAST
from gnnbench.measure import environment
from gnnbench.ops.kernels import Kernels
from gnnbench.partition import estimate, rates
from gnnbench.partition.estimate import Estimate, Rates, Share
from gnnbench.partition.part import Method, assign
from gnnbench.results.schema import Record

SPEED = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT])(b|B)(?:/s|it/s|ps)?")


class Size(NamedTuple):
    """Sizes of a graph as published."""

    nodes: int
    edges: int
    features: int
    classes: int


PUBLISHED = {  # features and classes as of Hu et al. 2020, "Open graph benchmark"
    "ogbn-arxiv": Size(*ogb.KNOWN["ogbn-arxiv"], 128, 40),
    "ogbn-products": Size(*ogb.KNOWN["ogbn-products"], 100, 47),
    "ogbn-proteins": Size(*ogb.KNOWN["ogbn-proteins"], 8, 112),
    "ogbn-papers100M": Size(*ogb.KNOWN["ogbn-papers100M"], 128, 172),
}


class Plan(Record):
    """Predictions for one graph in parts; nothing of it was trained."""

    schema_version: Literal[1] = 1
    predicted: Literal[True] = True
    name: str
    nodes: int
    edges: int
    method: Method
    modelled: bool = Field(description="parts have the mean size and degree; otherwise they were made and counted")
    model: dict[str, Any]
    rates: Rates
    network_bytes_per_s: float
    environment: dict[str, Any]
    estimates: dict[int, list[Estimate]] = Field(description="by number of parts; of each, or one if modelled")


class Counted(NamedTuple):
    """A graph in parts, for each of several numbers of them.

    Attributes:
        shares: the counts of every part; of one where they are modelled.
        rows: edges that rates are measured on.
    """

    name: str
    size: Size
    method: Method
    modelled: bool
    shares: dict[int, list[Share]]
    rows: Graph


def published(config: Run, where: Roots) -> Size | None:
    """The size of a graph that is not on disk; None of any other."""
    name = getattr(config.dataset, "name", None)
    if config.dataset.source != "ogb" or name not in PUBLISHED:
        return None
    if any(offer.where for offer in ogb.listing(where) if offer.spec == name):
        return None
    size = PUBLISHED[name]
    return size._replace(edges=2 * size.edges) if config.dataset.to_undirected else size


def of_size(name: str, size: Size, parts: Sequence[int], kernels: Kernels) -> Counted:
    """Random parts of a graph that is not there, of mean size and degree."""
    counts = {each: [estimate.random_share(size.nodes, size.edges, each)] for each in parts}
    (largest,) = counts[min(parts)]
    return Counted(name, size, "random", True, counts, rates.drawn(largest, kernels))


def of_dataset(dataset: NodeDataset, parts: Sequence[int], method: Method, seed: int, kernels: Kernels) -> Counted:
    """The parts that `assign` makes, and the edges of the heaviest one.

    Raises:
        DatasetError: as `assign`.
    """
    graph = dataset.graph(torch.device("cpu"), kernels)
    assignments = {each: assign(graph, each, method, seed) for each in parts}
    counts = {each: shares(graph, assignment, each) for each, assignment in assignments.items()}
    fewest = min(parts)
    heaviest = max(range(fewest), key=lambda rank: counts[fewest][rank].edges)
    size = Size(graph.num_rows, graph.num_edges, dataset.x.size(1), dataset.num_classes)
    nodes = (assignments[fewest] == heaviest).nonzero().flatten()
    return Counted(dataset.label, size, method, False, counts, _rows(graph, nodes))


def plan(
    counted: Counted,
    config: Run,
    kernels: Kernels,
    *,
    network: float,
    program_bytes: int,
    now: Callable[[], float],
) -> Plan:
    """Measure rates, and say what every part takes.

    Args:
        config: the model, and the rewrites of backends.
        network: bytes per second that a worker sends, and receives at the same time.
        program_bytes: memory of a process that trains on next to nothing.
        now: a clock.

    Raises:
        ConfigError: the model is of a kind that cannot be planned.
    """
    size = counted.size
    stack = estimate.layers(config.model, config.backend, size.features, size.classes)
    widths = [layer.message for layer in stack]
    measured = rates.measure(counted.rows, kernels, widths, config.model.hidden, program_bytes, now)
    return Plan(
        name=counted.name,
        nodes=size.nodes,
        edges=size.edges,
        method=counted.method,
        modelled=counted.modelled,
        model=config.model.model_dump(mode="json"),
        rates=measured,
        network_bytes_per_s=network,
        environment=environment.describe(),
        estimates={
            parts: [estimate.estimate(share, config.model, stack, measured, network) for share in each]
            for parts, each in counted.shares.items()
        },
    )


def shares(graph: Graph, assignment: Tensor, parts: int) -> list[Share]:
    """The counts of every part, whose edges are in memory one part at a time."""
    counts, sent = [], torch.zeros(parts, dtype=torch.int64)
    for rank in range(parts):
        nodes = (assignment == rank).nonzero().flatten()
        source = _sources(graph, nodes)
        is_source = torch.zeros(graph.num_rows, dtype=torch.bool)
        is_source[source] = True
        owners = assignment[is_source & (assignment != rank)]
        counts.append((len(nodes), len(source), len(owners), _apart(graph, nodes, assignment[source] != rank)))
        sent += owners.bincount(minlength=parts)
    symmetric = parts == 1 and graph.is_symmetric
    return [
        Share(nodes, edges, halo, number, apart, symmetric)
        for (nodes, edges, halo, apart), number in zip(counts, sent.tolist(), strict=True)
    ]


def _apart(graph: Graph, nodes: Tensor, is_cut: Tensor) -> int:
    """All edges of a part where `Part.apart` copies them, else none; `is_cut` [e]: whether they cross parts."""
    degree = graph.degree[nodes]
    boundary = torch.arange(len(nodes)).repeat_interleave(degree)[is_cut].unique()
    interior = len(is_cut) - int(degree[boundary].sum())
    return len(is_cut) if LEAST * len(is_cut) <= interior < len(is_cut) else 0


def _sources(graph: Graph, nodes: Tensor) -> Tensor:
    """The sources of all in-edges of `nodes`, [e] int64."""
    degree = graph.rowptr[nodes + 1] - graph.rowptr[nodes]
    begin = (graph.rowptr[nodes] - degree.cumsum(0) + degree).repeat_interleave(degree)
    return graph.col[begin + torch.arange(len(begin))].long()


def _rows(graph: Graph, nodes: Tensor) -> Graph:
    """The in-edges of `nodes`, whose columns are these nodes and all sources, in the order of their ids."""
    columns, place = torch.cat([nodes, _sources(graph, nodes)]).unique(return_inverse=True)
    rowptr = torch.zeros(len(nodes) + 1, dtype=torch.int64)
    torch.cumsum(graph.rowptr[nodes + 1] - graph.rowptr[nodes], 0, out=rowptr[1:])
    return Graph(rowptr, place[len(nodes) :].int(), len(columns), None, graph.layout)


def speed(text: str) -> float:
    """Bytes per second of `"10Gb"` (bits) or `"1.2GB"` (bytes).

    Raises:
        ConfigError: it is neither.
    """
    match = SPEED.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise ConfigError(f"--network {text!r}: write it as 10Gb (bits per second) or 1.2GB (bytes per second)")
    return float(match[1]) * 1000.0 ** (1 + "KMGT".index(match[2])) / (8 if match[3] == "b" else 1)


def kernels() -> Kernels:
    """Those that rates are measured with."""
    return Kernels() if isplib.MISSING else isplib.IsplibKernels()
