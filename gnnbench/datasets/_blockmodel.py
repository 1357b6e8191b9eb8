"""Generate a degree-corrected stochastic block model straight to disk, in memory of a few words per edge."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gnnbench.datasets import _cache

if TYPE_CHECKING:
    from gnnbench.datasets.synthetic import Shape

VERSION = "1"  # to be raised whenever the same seed gives another graph
CHUNK = 1 << 22
MULTILABEL_COMMUNITIES = 32
LABEL_DENSITY = 0.15
FREE_ROUNDS = 3

Ints = NDArray[np.integer]
Floats = NDArray[np.floating]


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
    _cache.save(folder / "edge_index.npy", (2, shape.edges), np.int64, _both_directions(pairs, shape.nodes))
    x = normals(feature_rng, community, shape.features, shape.signal, shape.density)
    _cache.save(folder / "x.npy", (shape.nodes, shape.features), np.float32, x)
    if shape.multilabel:
        labels = normals(label_rng, community, shape.classes, shape.signal * 4, LABEL_DENSITY)
        _cache.save(folder / "y.npy", (shape.nodes, shape.classes), np.float32, labels)
    else:
        drawn = label_rng.integers(shape.classes, size=shape.nodes)
        np.save(folder / "y.npy", np.where(label_rng.random(shape.nodes) < shape.label_noise, drawn, community))
    part = np.zeros(shape.nodes, np.int8)
    part[: shape.train + shape.val + shape.test] = np.repeat([1, 2, 3], [shape.train, shape.val, shape.test])
    np.save(folder / "part.npy", split_rng.permutation(part))


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
