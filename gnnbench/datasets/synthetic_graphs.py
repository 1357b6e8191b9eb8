"""Synthetic sets of many graphs in the shapes of well-known ones, with tasks that can be learned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gnnbench.config import DatasetConfig
from gnnbench.datasets import GraphsDataset, Offer, Roots, one_of, synthetic
from gnnbench.datasets._kinds import SPLITS
from gnnbench.datasets.synthetic import Floats, Ints

PEAK_BYTES_PER_EDGE = 24  # of generation: what is kept, and what is written
VERSION = "1"  # to be raised whenever the same seed gives other graphs
CHUNK_NODES = 100_000  # drawn at once
PATTERNS, PATTERN_NODES = 100, 20
NEIGHBOURS = 8  # of a superpixel
CONCENTRATION = 3.0  # of the beta distribution of their number
WAVES = 3  # that make up the image of a class
OBJECTS = 3  # in a scene
Streams = Iterable[tuple[np.random.Generator, int]]  # random numbers of each chunk, and how many graphs it has


@dataclass(frozen=True)
class Shape:
    """Sizes of a set of graphs; counts are those of the set it is named after.

    Attributes:
        kind: "pattern" (find the nodes of a planted graph), "cluster" (find communities), "image" (classify
            superpixels as a whole) or "scene" (classify each superpixel).
        train, val, test: graphs in each split.
        nodes, edges: their means over graphs, edges in both directions.
        features: of a node.
        classes: of a graph, or of a node for all kinds but "image".
        fewest, most: nodes of a superpixel graph.
    """

    kind: Literal["pattern", "cluster", "image", "scene"]
    train: int
    val: int
    test: int
    nodes: float
    edges: float
    features: int
    classes: int
    fewest: int = 0
    most: int = 0


PRESETS = {
    "pattern": Shape("pattern", 10_000, 2_000, 2_000, 118.9, 6_099, 3, 2),
    "cluster": Shape("cluster", 10_000, 1_000, 1_000, 117.2, 4_304, 7, 6),
    "mnist": Shape("image", 55_000, 5_000, 10_000, 70.6, 564.5, 3, 10, 40, 75),
    "cifar10": Shape("image", 45_000, 5_000, 10_000, 117.6, 941.2, 5, 10, 85, 150),
    "pascalvoc-sp": Shape("scene", 8_498, 1_428, 1_429, 479.4, 2_710, 14, 21, 395, 500),
    "coco-sp": Shape("scene", 113_286, 5_000, 5_000, 476.9, 2_694, 14, 81, 395, 500),
}
SPECS = [f"synthetic:{preset}" for preset in PRESETS]


class Config(DatasetConfig):
    """A preset, and how much of it."""

    source: str = "synthetic_graphs"
    preset: Annotated[str, one_of("preset", PRESETS)]
    scale: synthetic.Scale = Field(1.0, description="factor on the number of graphs, which keep their size")


parse = partial(synthetic.parsed, presets=PRESETS)


def listing(where: Roots) -> list[Offer]:
    """The presets at scale 1."""
    sizes = {preset: _sizes(shape, 1.0) for preset, shape in PRESETS.items()}
    return [
        synthetic.offered(preset, _folder(Config(preset=preset), parts, where), None, None, sum(parts))
        for preset, parts in sizes.items()
    ]


def load(config: Config, where: Roots) -> GraphsDataset:
    """Generate the graphs, or map those generated before; equal configurations give equal graphs.

    PATTERN and CLUSTER are drawn as in Dwivedi et al. 2020; superpixels are points that neighbours keep away from
    each other, with features that depend on the class. The metrics are those of the sets they stand for: macro
    F1 for scenes, else accuracy.
    """
    import torch

    shape = PRESETS[config.preset]
    sizes = _sizes(shape, config.scale)
    name = synthetic.titled(config.preset, config.scale)
    nodes, edges = shape.nodes * sum(sizes), shape.edges * sum(sizes)
    memory = PEAK_BYTES_PER_EDGE * edges + 16 * nodes * (shape.features + 2)
    disk = 8 * edges + 4 * nodes * (shape.features + 2)
    synthetic.check_fits(name, memory, disk, where)
    draw = partial(generate, shape, sum(sizes), config.seed)
    return GraphsDataset(
        name,
        **synthetic.generated(_folder(config, sizes, where), draw),
        splits=dict(zip(SPLITS, torch.arange(sum(sizes)).split(sizes), strict=True)),
        target="class",
        num_outputs=shape.classes,
        metric="macro F1" if shape.kind == "scene" else "accuracy",
        per_node=shape.kind != "image",
        synthetic_parts=["graphs", "features", "labels", "split"],
    )


def _sizes(shape: Shape, scale: float) -> list[int]:
    """Graphs in each split, at least one."""
    return [max(1, round(getattr(shape, split) * scale)) for split in SPLITS]


def _folder(config: Config, sizes: list[int], where: Roots) -> Path:
    shape = sorted(asdict(PRESETS[config.preset]).items())
    return synthetic.folder(where, config.preset, VERSION, shape, sum(sizes), config.seed)


class Chunk(NamedTuple):
    """Some graphs. Edges are ordered by source, then destination; ids count through the chunk."""

    sizes: Ints  # [G]
    edges: Ints  # [2, E]
    x: Floats  # [N, F]
    y: Ints  # [N] or [G]


def generate(shape: Shape, graphs: int, seed: int, folder: Path) -> None:
    """Write `graphs` graphs of `shape` into `folder`, the same for the same seed whatever the number of threads.

    Files:
        graph_ptr.npy, edge_ptr.npy: [G + 1] int64.
        edge_index.npy: [2, E] int32, from 0 in each graph, without loops or duplicates.
        x.npy: [N, F] float32.
        y.npy: [N] int64, or [G] for images.
    """
    constant = np.random.default_rng([seed, 0])  # what all graphs share
    draw = {"pattern": _patterns, "cluster": _clusters, "image": _images, "scene": _scenes}[shape.kind]
    at_once = max(1, round(CHUNK_NODES / shape.nodes))
    counts = [min(at_once, graphs - begin) for begin in range(0, graphs, at_once)]
    streams = [(np.random.default_rng([seed, 1 + number]), count) for number, count in enumerate(counts)]
    arrays = [_arrays(chunk) for chunk in draw(shape, streams, constant)]
    for name in arrays[0]:
        array = np.concatenate([each[name] for each in arrays], axis=int(name == "edge_index"))
        np.save(folder / f"{name}.npy", np.append(0, np.cumsum(array)) if name.endswith("ptr") else array)


def _arrays(chunk: Chunk) -> dict[str, NDArray]:
    """The arrays of a chunk as they are written, but sizes of graphs in place of `graph_ptr` and `edge_ptr`."""
    owner = np.repeat(np.arange(len(chunk.sizes)), chunk.sizes)[chunk.edges[0]]
    first = np.cumsum(chunk.sizes) - chunk.sizes
    return {
        "graph_ptr": chunk.sizes,
        "edge_ptr": np.bincount(owner, minlength=len(chunk.sizes)),
        "edge_index": (chunk.edges - first[owner]).astype(np.int32),
        "x": chunk.x.astype(np.float32),
        "y": chunk.y.astype(np.int64),
    }


def _patterns(shape: Shape, streams: Streams, constant: np.random.Generator) -> Iterator[Chunk]:
    """PATTERN: one of a hundred fixed graphs is planted in five communities; each node says whether it is of it.

    Dwivedi et al. 2020: edges within a community with probability 0.5, between communities with 0.35; the
    pattern has 20 nodes, and half of all edges among them and to the rest. Communities have 5 to 35 nodes.
    """
    shapes = constant.random((PATTERNS, PATTERN_NODES, PATTERN_NODES)) < 0.5
    signals = constant.integers(shape.features, size=(PATTERNS, PATTERN_NODES))
    for rng, count in streams:
        communities = rng.integers(5, 36, size=(count, 5))
        blocks = np.hstack([communities, np.full((count, 1), PATTERN_NODES)])
        sizes, block, rank = _blocks(rng, blocks)
        planted = block == 5
        u, v = _pairs(sizes)
        share = np.where(block[u] == block[v], 0.5, 0.35)
        share[planted[u] | planted[v]] = 0.5
        kept = rng.random(len(u), dtype=np.float32) < share
        both = np.flatnonzero(planted[u] & planted[v])
        pattern = np.repeat(rng.integers(PATTERNS, size=count), sizes)
        low, high = np.sort(rank[np.stack([u[both], v[both]])], axis=0)
        kept[both] = shapes[pattern[u[both]], low, high]
        word = rng.integers(shape.features, size=len(block))
        word[planted] = signals[pattern[planted], rank[planted]]
        yield Chunk(sizes, _directed(u[kept], v[kept]), np.eye(shape.features)[word], planted)


def _clusters(shape: Shape, streams: Streams, constant: np.random.Generator) -> Iterator[Chunk]:
    """CLUSTER: six communities, of which one node each tells its number; each node is asked for its own.

    Dwivedi et al. 2020: edges within a community with probability 0.55, between communities with 0.25.
    Communities have 5 to 34 nodes.
    """
    for rng, count in streams:
        blocks = rng.integers(5, 35, size=(count, shape.classes))
        sizes, block, rank = _blocks(rng, blocks)
        u, v = _pairs(sizes)
        kept = rng.random(len(u), dtype=np.float32) < np.where(block[u] == block[v], 0.55, 0.25)
        word = np.where(rank == 0, block + 1, 0)
        yield Chunk(sizes, _directed(u[kept], v[kept]), np.eye(shape.features)[word], block)


def _blocks(rng: np.random.Generator, blocks: Ints) -> tuple[Ints, Ints, Ints]:
    """Nodes [G] of graphs with blocks of sizes [G, B]; block [N] and rank in it [N] of nodes in random order."""
    graphs, count = blocks.shape
    sizes = blocks.sum(1)
    flat = blocks.ravel()
    block = np.repeat(np.tile(np.arange(count), graphs), flat)
    rank = np.arange(len(block)) - np.repeat(np.cumsum(flat) - flat, flat)
    graph = np.repeat(np.arange(graphs), sizes)
    order = np.lexsort((rng.random(len(block)), graph))
    return sizes, block[order], rank[order]


def _pairs(sizes: Ints) -> tuple[Ints, Ints]:
    """All pairs u < v of nodes of the same graph."""
    nodes = int(sizes.sum())
    last = np.repeat(np.cumsum(sizes), sizes)
    later = last - np.arange(nodes) - 1
    u = np.repeat(np.arange(nodes), later)
    v = np.arange(len(u)) - np.repeat(np.cumsum(later) - later, later) + u + 1
    return u, v


def _directed(u: Ints, v: Ints) -> Ints:
    """[2, E] both directions of distinct pairs, by source and then destination."""
    keys = np.concatenate([u << 32 | v, v << 32 | u])
    keys.sort()
    return np.stack([keys >> 32, keys & 0xFFFFFFFF])


def _images(shape: Shape, streams: Streams, constant: np.random.Generator) -> Iterator[Chunk]:
    """Superpixels joined to their nearest neighbours, coloured by an image of their class, with noise."""
    colours = shape.features - 2
    direction = constant.uniform(-2, 2, size=(shape.classes, WAVES, 2))
    phase = constant.uniform(0, 2 * np.pi, size=(shape.classes, colours, WAVES))
    for rng, count in streams:
        sizes, places, _, neighbours = _superpixels(rng, shape, count)
        y = rng.integers(shape.classes, size=count)
        label = np.repeat(y, sizes)
        angle = 2 * np.pi * np.einsum("nd,nwd->nw", places, direction[label])
        colour = 0.5 + 0.5 * np.sin(angle[:, None] + phase[label]).mean(-1)
        colour += rng.normal(scale=0.15, size=colour.shape)
        edges = np.stack([np.repeat(np.arange(len(places)), NEIGHBOURS), np.sort(neighbours, axis=1).ravel()])
        yield Chunk(sizes, edges, np.hstack([colour, places]), y)


def _scenes(shape: Shape, streams: Streams, constant: np.random.Generator) -> Iterator[Chunk]:
    """Superpixels of a background (class 0) and a few round objects; the nearest neighbours are joined."""
    colours = shape.features - 2
    means = constant.normal(scale=0.5, size=(shape.classes, colours))
    for rng, count in streams:
        sizes, places, distances, neighbours = _superpixels(rng, shape, count)
        graph = np.repeat(np.arange(count), sizes)
        y = np.zeros(len(places), np.int64)
        for _ in range(OBJECTS):
            centre, radius = rng.random((count, 2)), rng.uniform(0.1, 0.25, size=count)
            inside = ((places - centre[graph]) ** 2).sum(1) < radius[graph] ** 2
            y[inside] = rng.integers(1, shape.classes, size=count)[graph[inside]]
        x = np.hstack([means[y] + rng.normal(size=(len(y), colours)), places])
        u = np.repeat(np.arange(len(places)), NEIGHBOURS)
        low, high = np.minimum(u, neighbours.ravel()), np.maximum(u, neighbours.ravel())
        pairs, which = np.unique(low << 32 | high, return_index=True)
        wanted = min(len(pairs), round(shape.edges / shape.nodes * len(places) / 2))
        pairs = pairs[np.argsort(distances.ravel()[which], kind="stable")[:wanted]]
        yield Chunk(sizes, _directed(pairs >> 32, pairs & 0xFFFFFFFF), x, y)


def _superpixels(rng: np.random.Generator, shape: Shape, count: int) -> tuple[Ints, Floats, Floats, Ints]:
    """Numbers of nodes [G], places [N, 2] in the unit square, and distances and ids [N, 8] of the nearest nodes.

    Most graphs have nearly as many superpixels as were asked for, and some have far fewer. Superpixels cover an
    image evenly, and so does the lattice that they are drawn near, in random order.
    """
    from scipy.spatial import cKDTree

    span = shape.most - shape.fewest
    share = (shape.nodes - shape.fewest) / span
    drawn = rng.beta(CONCENTRATION * share, CONCENTRATION * (1 - share), size=count)
    sizes = shape.fewest + np.rint(drawn * span).astype(np.int64)
    graph = np.repeat(np.arange(len(sizes)), sizes)
    size = sizes[graph]
    rank = np.arange(len(graph)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rank = rank[np.lexsort((rng.random(len(graph)), graph))]
    golden = (np.sqrt(5) - 1) / 2
    across, along = (rank + 0.5) / size, (rank * golden + rng.random(len(sizes))[graph]) % 1
    places = np.stack([across, along], axis=1)
    places += rng.normal(scale=0.25, size=places.shape) / np.sqrt(size)[:, None]
    apart = np.column_stack([places, 10.0 * graph])  # one tree for all: other graphs are too far to be neighbours
    distances, ids = cKDTree(apart).query(apart, k=NEIGHBOURS + 1)
    itself = ids == np.arange(len(graph))[:, None]
    itself[~itself.any(1), -1] = True  # of a point that coincides with others
    return sizes, places, distances[~itself].reshape(-1, NEIGHBOURS), ids[~itself].reshape(-1, NEIGHBOURS)
