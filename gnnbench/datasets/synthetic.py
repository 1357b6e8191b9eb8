"""Degree-corrected stochastic block models shaped like well-known graphs, at any scale (Karrer & Newman 2011).

Also what all sources of synthetic data share: names of presets, where they are kept, and whether there is room.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
from numpy.typing import NDArray
from pydantic import Field

from gnnbench.config import DatasetConfig, Fraction, Positive
from gnnbench.datasets import NodeDataset, Offer, Roots, _disk, one_of
from gnnbench.errors import DatasetError

PEAK_BYTES_PER_EDGE = 28  # measured with `reddit`
Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]
VERSION = "1"  # to be raised whenever the same seed gives another graph
CHUNK = 1 << 22
MULTILABEL_COMMUNITIES = 32
LABEL_DENSITY = 0.15
FREE_ROUNDS = 3

Ints = NDArray[np.integer]
Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Shape:
    """Sizes of a synthetic graph; counts of the presets are those of the graphs they are named after.

    Attributes:
        edges: directed, every undirected edge counted twice.
        max_degree: the largest degree.
        exponent: of the power law of the degrees, chosen to come near the graph's median degree.
        train, val, test: sizes of the split.
        homophily: share of edges that are drawn inside a community.
        label_noise: share of nodes whose label is drawn at random instead of being their community.
        signal: distance of two communities' mean features, in standard deviations of one feature.
        density: share of features that are one; at 1 they are not binary but normally distributed.
        multilabel: `classes` counts labels of which a node has any number.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    max_degree: int
    exponent: float
    train: int
    val: int
    test: int
    homophily: float
    label_noise: float
    signal: float = 2.0
    density: float = 1.0
    multilabel: bool = False


PRESETS = {
    "cora": Shape(2_708, 10_556, 1_433, 7, 168, 3.0, 140, 500, 1_000, 0.85, 0.05, 16.0, 0.0127),
    "reddit": Shape(232_965, 114_615_892, 602, 41, 21_657, 2.0, 153_431, 23_831, 55_703, 0.8, 0.05),
    "ogbn-arxiv": Shape(169_343, 2_315_598, 128, 40, 13_161, 2.4, 90_941, 29_799, 48_603, 0.75, 0.2),
    "ogbn-products": Shape(2_449_029, 123_718_280, 100, 47, 17_481, 2.5, 196_615, 39_323, 2_213_091, 0.85, 0.15),
    "ogbn-proteins": Shape(
        132_534, 79_122_504, 8, 112, 7_750, 2.2, 86_619, 21_236, 24_679, 0.7, 0.0, multilabel=True
    ),
}
SPECS = [f"synthetic:{preset}" for preset in PRESETS]


class Config(DatasetConfig):
    """A preset, scaled; the keys below `scale` replace its counts and are not scaled."""

    source: str = "synthetic"
    preset: Annotated[str, one_of("preset", PRESETS)]
    scale: Scale = Field(
        1.0, description="factor on nodes and edges; the mean degree stays, the maximum grows as its root"
    )
    nodes: Positive | None = None
    edges: Positive | None = Field(None, description="directed, every undirected edge counted twice")
    features: Positive | None = None
    classes: Positive | None = None
    homophily: Fraction | None = Field(None, description="share of edges drawn inside a community")


def parsed(spec: str, presets: Collection[str]) -> dict[str, Any] | None:
    """The keys that `synthetic:PRESET[:SCALE]` stands for; None for another name or preset."""
    source, *rest = spec.split(":")
    if source != "synthetic" or not 1 <= len(rest) <= 2 or rest[0] not in presets:
        return None
    return dict(zip(("preset", "scale"), rest, strict=False))


def titled(preset: str, scale: float) -> str:
    """Name a preset in tables."""
    return f"synthetic {preset}" + ("" if scale == 1 else f" x{scale:g}")


def folder(where: Roots, preset: str, *facts: Any) -> Path:
    """Where data of `preset` are kept that depend on `facts` alone."""
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    return where.cache / "synthetic" / f"{preset}-{digest}"


def offered(preset: str, folder: Path | None, nodes: int | None, edges: int | None, graphs: int = 1) -> Offer:
    """A preset at scale 1; on disk where it was generated before."""
    return Offer(f"synthetic:{preset}", nodes, edges, folder if folder and folder.is_dir() else None, graphs)


def generated(folder: Path, generate: Callable[[Path], None]) -> dict[str, Any]:
    """Arrays of a folder, which is filled first where it is missing.

    They are mapped copy-on-write: the file cannot change, and writing to a tensor is no crash.
    """
    import torch

    files = _disk.built(folder, generate).glob("*.npy")
    return {path.stem: torch.from_numpy(np.load(path, mmap_mode="c")) for path in files}


def check_fits(name: str, memory: float, disk: float, where: Roots) -> None:
    """Raises DatasetError where generating `name` needs more bytes than are free."""
    for resource, need, free in (
        ("memory", memory, psutil.virtual_memory().available),
        ("disk", disk, shutil.disk_usage(_disk.nearest(where.cache)).free),
    ):
        if need > free:
            raise DatasetError(
                f"{name}: generating it needs {need / 2**30:.1f} GiB of {resource}, but "
                f"{free / 2**30:.1f} GiB are free; use a smaller dataset.scale"
            )


parse = partial(parsed, presets=PRESETS)


def listing(where: Roots) -> list[Offer]:
    """The presets at scale 1."""
    return [offer(Config(preset=preset), shape, where) for preset, shape in PRESETS.items()]


def offer(config: Config, shape: Shape, where: Roots) -> Offer:
    """A preset of `shape`, at scale 1."""
    return offered(config.preset, _folder(config, shape, where), shape.nodes, shape.edges)


def load(config: Config, where: Roots) -> NodeDataset:
    """Generate the graph, or map the one generated before; equal configurations give equal graphs."""
    preset = PRESETS[config.preset]
    found = arrays(config, preset, where)
    split = found.pop("part")
    return NodeDataset(
        name=name(config),
        **found,
        train_mask=split == 1,
        val_mask=split == 2,
        test_mask=split == 3,
        num_classes=config.classes or preset.classes,
        synthetic_parts=["graph", "features", "labels", "split"],
    )


def arrays(config: Config, preset: Shape, where: Roots) -> dict[str, Any]:
    """Return `edge_index`, `x`, `y` and `part` of a preset as `config` has it, generated or mapped."""
    shape = scaled(config, preset)
    needed = 3 if shape.multilabel else 3 * shape.classes
    if shape.nodes < needed:
        classes = "a split" if shape.multilabel else f"{shape.classes} classes"
        raise DatasetError(
            f"{name(config)}: {shape.nodes} nodes are too few for {classes}; use a scale of at least "
            f"{needed / preset.nodes:.2g}, or dataset.nodes of at least {needed}"
        )
    memory = PEAK_BYTES_PER_EDGE * shape.edges + 100 * shape.nodes
    disk = 16 * shape.edges + 4 * shape.nodes * (shape.features + shape.classes * shape.multilabel)
    check_fits(name(config), memory, disk, where)
    return generated(_folder(config, shape, where), partial(generate, shape, config.seed))


def scaled(config: Config, preset: Shape) -> Shape:
    """The counts that `config` asks for; edges are bounded by half of all pairs of nodes."""
    nodes = config.nodes or max(1, round(preset.nodes * config.scale))
    edges = config.edges or round(preset.edges * config.scale)
    edges = 2 * min(edges // 2, nodes * (nodes - 1) // 4)
    # A graph without repeated edges has its largest degrees near sqrt(nodes) at a fixed mean degree.
    cut = preset.max_degree * math.sqrt(nodes / preset.nodes)
    share = nodes / preset.nodes
    return replace(
        preset,
        nodes=nodes,
        edges=edges,
        max_degree=max(1, min(nodes - 1, round(max(cut, 3 * edges / nodes)))),
        **{split: max(1, math.floor(getattr(preset, split) * share)) for split in ("train", "val", "test")},
        **{key: value for key, value in chosen(config).items() if key not in ("nodes", "edges")},
    )


def chosen(config: Config) -> dict[str, Any]:
    """The keys that `config` has in place of those of its preset."""
    keys = ("nodes", "edges", "features", "classes", "homophily")
    return {key: value for key in keys if (value := getattr(config, key)) is not None}


def name(config: Config) -> str:
    """Name a preset in tables, with what `config` changed of it."""
    given = [f"{key} {value}" for key, value in chosen(config).items()]
    return ", ".join([titled(config.preset, config.scale), *given])


def _folder(config: Config, shape: Shape, where: Roots) -> Path:
    return folder(where, config.preset, VERSION, sorted(asdict(shape).items()), config.seed)


def generate(shape: Shape, seed: int, folder: Path) -> None:
    """Write a graph of `shape` into `folder`, the same for the same seed whatever the number of threads.

    Files:
        edge_index.npy: [2, E] int64, symmetric, sorted by source then destination as PyG's `coalesce`
            leaves it, without loops or duplicates. Node ids are random, so neighbours are not
            near each other in memory.
        x.npy: [N, F] float32.
        y.npy: [N] int64, or [N, T] float32.
        part.npy: [N] int8: 1 train, 2 validation, 3 test, 0 none.
    """
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(5)]
    edge_rng, community_rng, feature_rng, label_rng, split_rng = streams
    communities = min(MULTILABEL_COMMUNITIES, shape.nodes) if shape.multilabel else shape.classes
    community = _communities(community_rng, shape.nodes, communities)
    degree = _power_law(edge_rng, shape.nodes, shape.edges / shape.nodes, shape.max_degree, shape.exponent)

    pairs = _pairs(edge_rng, degree, community, shape.edges // 2, shape.homophily)
    _disk.save(folder / "edge_index.npy", (2, shape.edges), np.int64, _both_directions(pairs, shape.nodes))
    x = normals(feature_rng, community, shape.features, shape.signal, shape.density)
    _disk.save(folder / "x.npy", (shape.nodes, shape.features), np.float32, x)
    if shape.multilabel:
        labels = normals(label_rng, community, shape.classes, shape.signal * 4, LABEL_DENSITY)
        _disk.save(folder / "y.npy", (shape.nodes, shape.classes), np.float32, labels)
    else:
        drawn = label_rng.integers(shape.classes, size=shape.nodes)
        np.save(folder / "y.npy", np.where(label_rng.random(shape.nodes) < shape.label_noise, drawn, community))
    split = np.zeros(shape.nodes, np.int8)
    split[: shape.train + shape.val + shape.test] = np.repeat([1, 2, 3], [shape.train, shape.val, shape.test])
    np.save(folder / "part.npy", split_rng.permutation(split))


def _communities(rng: np.random.Generator, nodes: int, count: int) -> Ints:
    """[N] int64: sizes fall as the root of their rank, and none is empty."""
    share = 1 / np.sqrt(np.arange(1, count + 1))
    bounds = np.cumsum(share / share.sum()) * (nodes - count)
    sizes = np.diff(np.rint(bounds).astype(np.int64), prepend=0) + 1
    return rng.permutation(np.repeat(np.arange(count), sizes))


def _power_law(rng: np.random.Generator, nodes: int, mean: float, maximum: int, exponent: float) -> Ints:
    """[N] int64 degrees of at least 1: density k^-exponent from a lower end that gives the mean to `maximum`."""
    from scipy.optimize import brentq

    quantile = np.linspace(0, 1, nodes)
    power = 1 - exponent

    def degrees(low: float) -> Floats:
        return (low**power - quantile * (low**power - float(maximum) ** power)) ** (1 / power)

    if maximum <= mean:
        return np.full(nodes, max(1, round(mean)))
    low = brentq(lambda low: degrees(low).mean() - mean, 1e-3 * mean, mean)
    rounded = np.floor(degrees(low) + rng.random(nodes)).astype(np.int64)
    return rng.permutation(np.clip(rounded, 1, maximum))


def _pairs(rng: np.random.Generator, degree: Ints, community: Ints, count: int, homophily: float) -> Ints:
    """[count] int64, ascending: distinct undirected edges `u << bits | v` with u < v.

    A configuration model: every node has as many stubs (ends of edges) as its degree, and stubs are joined in
    random pairs, a share of `homophily` of them within their community. Loops and repeats are dropped, which
    costs hubs most, so free stubs are joined again, later to any nodes, until the number of edges is right.
    """
    nodes = len(degree)
    order = np.argsort(community, kind="stable").astype(np.int32)
    stubs = np.repeat(order, degree[order])
    inside = rng.random(len(stubs), dtype=np.float32) < homophily
    parts = np.cumsum(np.bincount(community, weights=degree).astype(np.int64))[:-1]
    own = zip(np.split(stubs, parts), np.split(inside, parts), strict=True)
    within = [_matched(rng, part[kept], nodes) for part, kept in own]
    pairs = _distinct(np.concatenate([*within, _matched(rng, stubs[~inside], nodes)]))
    del stubs, inside, within
    for attempt in itertools.count():
        if (missing := count - len(pairs)) <= 0:
            break
        free = np.repeat(np.arange(nodes, dtype=np.int32), np.maximum(degree - _degrees(pairs, nodes), 0))
        rng.shuffle(free)
        ends = rng.integers(nodes, size=2 * missing, dtype=np.int32)
        reserved = len(ends) if attempt < FREE_ROUNDS else missing
        ends[: min(reserved, len(free))] = free[:reserved]
        pairs = _distinct(np.concatenate([pairs, _joined(ends, nodes)]))
    if len(pairs) > count:
        pairs = np.delete(pairs, rng.choice(len(pairs), len(pairs) - count, replace=False))
    return pairs


def _matched(rng: np.random.Generator, stubs: Ints, nodes: int) -> Ints:
    """`_joined` after a shuffle in place."""
    rng.shuffle(stubs)
    return _joined(stubs, nodes)


def _joined(stubs: Ints, nodes: int) -> Ints:
    """Pairs of a stub in the first half with one in the second, without loops, perhaps repeated."""
    u, v = stubs[: len(stubs) // 2], stubs[len(stubs) // 2 :][: len(stubs) // 2]
    pairs = np.minimum(u, v).astype(np.int64) << _bits(nodes)
    pairs |= np.maximum(u, v)
    return pairs[u != v]


def _distinct(pairs: Ints) -> Ints:
    """`pairs` ascending, each once."""
    pairs.sort()
    return pairs[np.diff(pairs, prepend=-1) != 0]


def _both_directions(pairs: Ints, nodes: int) -> Iterator[Ints]:
    """Chunks of the sources, then of the destinations, of all edges in both directions."""
    bits = _bits(nodes)
    mask = (1 << bits) - 1
    reverse = ((pairs & mask) << bits) | (pairs >> bits)
    reverse.sort()
    edges = np.concatenate([pairs, reverse])
    del reverse
    edges.sort(kind="stable")
    chunks = [edges[begin : begin + CHUNK] for begin in range(0, len(edges), CHUNK)]
    yield from (chunk >> bits for chunk in chunks)
    yield from (chunk & mask for chunk in chunks)


def normals(
    rng: np.random.Generator, community: Ints, width: int, signal: float, density: float
) -> Iterator[Floats]:
    """Chunks of [N, width] float32: the community's mean plus noise; below density 1 whether that is large."""
    from scipy.special import ndtri

    spread = signal / math.sqrt(2 * max(1, width))
    means = rng.standard_normal((int(community.max()) + 1, width), dtype=np.float32) * np.float32(spread)
    threshold = ndtri(1 - density) * math.hypot(1, spread)
    rows = max(1, CHUNK // max(1, width))
    for begin in range(0, len(community), rows):
        own = community[begin : begin + rows]
        values = rng.standard_normal((len(own), width), dtype=np.float32)
        values += means[own]
        yield values if density == 1 else (values > threshold).astype(np.float32)


def _degrees(pairs: Ints, nodes: int) -> Ints:
    bits = _bits(nodes)
    ends = np.bincount(pairs >> bits, minlength=nodes)
    ends += np.bincount(pairs & ((1 << bits) - 1), minlength=nodes)
    return ends


def _bits(nodes: int) -> int:
    return max(1, (nodes - 1).bit_length())
