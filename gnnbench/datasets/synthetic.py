"""Degree-corrected stochastic block models shaped like well-known graphs, at any scale (Karrer & Newman 2011)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from gnnbench.config import DatasetConfig, Fraction, Positive
from gnnbench.datasets import NodeDataset, Offer, Roots, _blockmodel, _synthetic, one_of
from gnnbench.errors import DatasetError

PEAK_BYTES_PER_EDGE = 28  # measured with `reddit`


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
    scale: _synthetic.Scale = Field(
        1.0, description="factor on nodes and edges; the mean degree stays, the maximum grows as its root"
    )
    nodes: Positive | None = None
    edges: Positive | None = Field(None, description="directed, every undirected edge counted twice")
    features: Positive | None = None
    classes: Positive | None = None
    homophily: Fraction | None = Field(None, description="share of edges drawn inside a community")


parse = partial(_synthetic.parse, presets=PRESETS)


def listing(where: Roots) -> list[Offer]:
    """The presets at scale 1."""
    return [offer(Config(preset=preset), shape, where) for preset, shape in PRESETS.items()]


def offer(config: Config, shape: Shape, where: Roots) -> Offer:
    """A preset of `shape`, at scale 1."""
    return _synthetic.offer(config.preset, _folder(config, shape, where), shape.nodes, shape.edges)


def load(config: Config, where: Roots) -> NodeDataset:
    """Generate the graph, or map the one generated before; equal configurations give equal graphs.

    Raises:
        DatasetError: too few nodes for its classes, or too large for the machine's memory or disk.
    """
    preset = PRESETS[config.preset]
    found = arrays(config, preset, where)
    part = found.pop("part")
    return NodeDataset(
        name=name(config),
        **found,
        train_mask=part == 1,
        val_mask=part == 2,
        test_mask=part == 3,
        num_classes=config.classes or preset.classes,
        made_up=["graph", "features", "labels", "split"],
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
    _synthetic.check_fits(name(config), memory, disk, where)
    return _synthetic.generated(_folder(config, shape, where), partial(_blockmodel.generate, shape, config.seed))


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
        **{part: max(1, math.floor(getattr(preset, part) * share)) for part in ("train", "val", "test")},
        **{key: value for key, value in chosen(config).items() if key not in ("nodes", "edges")},
    )


def chosen(config: Config) -> dict[str, Any]:
    """The keys that `config` has in place of those of its preset."""
    keys = ("nodes", "edges", "features", "classes", "homophily")
    return {key: value for key in keys if (value := getattr(config, key)) is not None}


def name(config: Config) -> str:
    """Name a preset in tables, with what `config` changed of it."""
    given = [f"{key} {value}" for key, value in chosen(config).items()]
    return ", ".join([_synthetic.scaled(config.preset, config.scale), *given])


def _folder(config: Config, shape: Shape, where: Roots) -> Path:
    return _synthetic.folder(where, config.preset, _blockmodel.VERSION, sorted(asdict(shape).items()), config.seed)
