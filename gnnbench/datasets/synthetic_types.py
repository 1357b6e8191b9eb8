"""Synthetic graphs of several types in the shape of ogbn-mag, with communities that cross all types."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from gnnbench.config import Count, DatasetConfig
from gnnbench.datasets import Offer, Roots, TypedDataset, one_of, synthetic
from gnnbench.datasets._kinds import MASKS

# Counts are those of ogbn-mag; degrees, communities and features are not.
NODES = {"author": 1_134_649, "field_of_study": 59_965, "institution": 8_740, "paper": 736_389}
EDGES = {
    ("author", "affiliated_with", "institution"): 1_043_998,
    ("author", "writes", "paper"): 7_145_660,
    ("paper", "cites", "paper"): 5_416_271,
    ("paper", "has_topic", "field_of_study"): 7_505_078,
}
VENUES, FEATURES = 349, 128  # of papers
SPLIT = (0.855, 0.088, 0.057)
PAPERS_OF_VENUE = 20  # at least, in a graph that is scaled down
HOMOPHILY = 0.6  # share of edges within a community
SIGNAL = 2.0  # distance of two venues' mean features, in standard deviations of one feature
SKEW = 2.0  # a node of rank r is drawn in proportion to r ** (1 / SKEW - 1)
PRESETS = ("mag",)
SPECS = ["synthetic:mag"]
BYTES = 60  # of an edge, at the peak


class Config(DatasetConfig):
    """The preset, scaled; all but papers have vectors that are trained in place of features."""

    source: str = "synthetic_types"
    preset: Annotated[str, one_of("preset", PRESETS)] = "mag"
    scale: synthetic.Scale = Field(1.0, description="factor on nodes and edges")
    to_undirected: bool = Field(True, description="add the reverse of every relation")
    embedding: Count = Field(128, description="width of vectors trained for types without features")


parse = partial(synthetic.parsed, presets=PRESETS)


def listing(where: Roots) -> list[Offer]:
    """The preset at scale 1, which is drawn whenever it is asked for."""
    return [synthetic.offered("mag", None, sum(NODES.values()), sum(EDGES.values()))]


def load(config: Config, where: Roots) -> TypedDataset:
    """Draw the graph; equal configurations give equal ones."""
    import torch
    from torch_geometric.data import HeteroData
    from torch_geometric.utils import coalesce

    from gnnbench.datasets import _prepare

    name = synthetic.titled(config.preset, config.scale)
    nodes = {kind: max(2, round(count * config.scale)) for kind, count in NODES.items()}
    edges = {relation: round(count * config.scale) for relation, count in EDGES.items()}
    synthetic.check_fits(name, BYTES * sum(edges.values()) + 4 * FEATURES * nodes["paper"], 0, where)
    rng = np.random.default_rng(config.seed)
    venues = min(VENUES, max(2, nodes["paper"] // PAPERS_OF_VENUE))
    community = {kind: rng.integers(venues, size=count) for kind, count in nodes.items()}
    data = HeteroData()
    for kind, count in nodes.items():
        data[kind].num_nodes = count
    for (source, label, destination), count in edges.items():
        ends = _pairs(rng, community[source], community[destination], count)
        data[source, label, destination].edge_index = coalesce(torch.from_numpy(ends))
    x = synthetic.normals(rng, community["paper"], FEATURES, SIGNAL, 1)
    papers = data["paper"]
    papers.x, papers.y = torch.from_numpy(np.concatenate([*x])), torch.from_numpy(community["paper"])
    bounds = [int(share * nodes["paper"]) for share in np.cumsum(SPLIT[:2])]
    order = torch.from_numpy(rng.permutation(nodes["paper"]))
    for mask, chosen in zip(MASKS, order.tensor_split(bounds), strict=True):
        papers[mask] = _prepare.mask_of(nodes["paper"], chosen)
    dataset = _prepare.typed(name, data)
    dataset.synthetic_parts = ["graph", "features", "labels", "split"]
    return dataset


def _pairs(rng: Generator, source: NDArray[Any], destination: NDArray[Any], count: int) -> NDArray[Any]:
    """[2, count] int64 ends of edges, of which some share their community, and some of which may be equal."""
    src = (len(source) * rng.random(count) ** SKEW).astype(np.int64)
    order = np.argsort(destination, kind="stable")
    first = np.searchsorted(destination[order], np.arange(max(source.max(), destination.max()) + 2))
    own = source[src]
    within = (rng.random(count) < HOMOPHILY) & (first[own + 1] > first[own])
    low = np.where(within, first[own], 0)
    size = np.where(within, first[own + 1] - first[own], len(destination))
    return np.stack([src, order[low + (size * rng.random(count) ** SKEW).astype(np.int64)]])
