"""A plan: what every worker would hold and exchange, for a graph that is read or known by its size alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from gnnbench import datasets
from gnnbench.config import Run
from gnnbench.datasets import Roots, ogb
from gnnbench.errors import ConfigError
from gnnbench.graph import CSRBuilder, Graph
from gnnbench.partition import part
from gnnbench.partition.part import Method, in_edges
from gnnbench.results.schema import Record

FLOAT = 4  # bytes
# Of what an epoch needs at once, as memory that malloc holds besides: in measured peaks, none to about all of it.
IDLE = 0.5


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


class Share(NamedTuple):
    """The counts of one part."""

    nodes: float
    edges: float
    halo: float  # nodes of other parts that it receives
    sent: float  # its own nodes, once for each part that receives them


class Estimate(Record):
    """One worker's share of an epoch, all of it predicted."""

    nodes: int
    edges: int
    halo: int = Field(description="nodes of other parts that it receives")
    memory_bytes: int = Field(description="peak of its process")
    exchange_bytes: int = Field(description="sent or received in an epoch, whichever is more")


class Plan(Record):
    """Predictions for one graph in parts; nothing of it was trained."""

    schema_version: Literal[2] = 2
    predicted: Literal[True] = True
    name: str
    nodes: int
    edges: int
    method: Method
    modelled: bool = Field(description="parts have the mean size and degree; otherwise they were made and counted")
    model: dict[str, Any]
    program_bytes: int = Field(description="memory of a worker that has not read its part yet")
    estimates: dict[int, list[Estimate]] = Field(description="by number of parts; of each, or one if modelled")


def plan(
    config: Run,
    roots: Roots,
    parts: Sequence[int],
    method: Method | Literal["auto"],
    seed: int,
    *,
    layout: CSRBuilder,
    program_bytes: int,
) -> Plan:
    """Take a graph apart, or model random parts of an OGB graph that is not on disk, and estimate.

    Args:
        layout: sorts the edges.
        program_bytes: memory of a worker that has not read its part yet.

    Raises:
        ConfigError: parts other than random ones of a graph that is not on disk.
        DatasetError: as `datasets.load` and `part.assign`.
    """
    name, size, modelled = str(getattr(config.dataset, "name", "")), published(config, roots), True
    if size:
        if method not in ("auto", "random"):
            raise ConfigError(f"{name} is not on disk, and without its edges only --method random can be planned")
        method, counts = "random", {each: [random_share(size.nodes, size.edges, each)] for each in parts}
    else:
        dataset = datasets.single(datasets.load(config.dataset, roots))
        graph, modelled = dataset.graph(torch.device("cpu"), layout), False
        size = Size(graph.num_rows, graph.num_edges, dataset.x.size(1), dataset.num_classes)
        name, method = dataset.label, part.chosen(method)[0]
        counts = {each: shares(graph, part.assign(graph, each, method, seed), each) for each in parts}
    widths = [size.features, *[config.model.hidden] * (config.model.layers - 1), size.classes]
    return Plan(
        name=name,
        nodes=size.nodes,
        edges=size.edges,
        method=method,
        modelled=modelled,
        model=config.model.model_dump(mode="json"),
        program_bytes=program_bytes,
        estimates={
            number: [estimate(share, widths, program_bytes) for share in each] for number, each in counts.items()
        },
    )


def published(config: Run, where: Roots) -> Size | None:
    """The size of a graph that is not on disk; None of any other."""
    name = getattr(config.dataset, "name", None)
    if config.dataset.source != "ogb" or name not in PUBLISHED:
        return None
    if any(offer.where for offer in ogb.listing(where) if offer.spec == name):
        return None
    size = PUBLISHED[name]
    return size._replace(edges=2 * size.edges) if config.dataset.to_undirected else size


def random_share(nodes: int, edges: int, parts: int) -> Share:
    """The expected counts of one of `parts` random parts, were all degrees the mean one.

    A node has a halo copy in a part unless all its out-edges end elsewhere. That share is concave in the degree:
    where degrees differ, halos are smaller.
    """
    elsewhere = 1 - 1 / parts
    halo = nodes * elsewhere * (1 - elsewhere ** (edges / nodes))
    return Share(nodes / parts, edges / parts, halo, halo)


def shares(graph: Graph, assignment: Tensor, parts: int) -> list[Share]:
    """The counts of every part, whose edges are in memory one part at a time."""
    counts, sent = [], torch.zeros(parts, dtype=torch.int64)
    for rank in range(parts):
        nodes = (assignment == rank).nonzero().flatten()
        source, _ = in_edges(graph, nodes)
        is_source = torch.zeros(graph.num_rows, dtype=torch.bool)
        is_source[source] = True
        owners = assignment[is_source & (assignment != rank)]
        counts.append((len(nodes), len(source), len(owners)))
        sent += owners.bincount(minlength=parts)
    return [Share(*count, number) for count, number in zip(counts, sent.tolist(), strict=True)]


def estimate(share: Share, widths: Sequence[int], program_bytes: int) -> Estimate:
    """Memory and exchanged bytes of one worker.

    Messages are as wide as the narrower end of a layer, as where convs multiply by their weights first if that is
    narrower. The memory is that of the part with its self-loops and of its transpose, of features, of what the
    backward pass needs of each layer (inputs, sums or products, and activations), and of what the largest layer
    has at work.

    Args:
        widths: of the features, and of the outputs of each layer.
    """
    layers = [*pairwise(widths)]
    columns = share.nodes + share.halo
    graph = 16 * (share.edges + columns)
    kept = share.nodes * sum(inputs + 2 * outputs for inputs, outputs in layers)
    at_work = max(2 * columns * inputs + share.nodes * outputs for inputs, outputs in layers)
    memory = graph + FLOAT * (share.nodes * widths[0] + (1 + IDLE) * (kept + at_work))
    messages = [min(ends) for ends in layers]
    travelling = 2 * sum(messages) - (
        messages[0] if widths[0] <= widths[1] else 0
    )  # plain features get no gradient
    return Estimate(
        nodes=round(share.nodes),
        edges=round(share.edges),
        halo=round(share.halo),
        memory_bytes=round(program_bytes + memory),
        exchange_bytes=round(FLOAT * travelling * max(share.halo, share.sent)),
    )
