"""Synthetic sets of many graphs in the shapes of well-known ones, with tasks that can be learned."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from gnnbench.config import DatasetConfig
from gnnbench.datasets import GraphsDataset, Offer, Roots, _draw_graphs, _synthetic, one_of
from gnnbench.datasets._kinds import PARTS

PEAK_BYTES_PER_EDGE = 24  # of generation: what is kept, and what is written


@dataclass(frozen=True)
class Shape:
    """Sizes of a set of graphs; counts are those of the set it is named after.

    Attributes:
        kind: "pattern" (find the nodes of a planted graph), "cluster" (find communities), "image" (classify
            superpixels as a whole) or "scene" (classify each superpixel).
        train, val, test: graphs in each part.
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
    scale: _synthetic.Scale = Field(1.0, description="factor on the number of graphs, which keep their size")


parse = partial(_synthetic.parse, presets=PRESETS)


def listing(where: Roots) -> list[Offer]:
    """The presets at scale 1."""
    sizes = {preset: _sizes(shape, 1.0) for preset, shape in PRESETS.items()}
    return [
        _synthetic.offer(preset, _folder(Config(preset=preset), parts, where), None, None, sum(parts))
        for preset, parts in sizes.items()
    ]


def load(config: Config, where: Roots) -> GraphsDataset:
    """Generate the graphs, or map those generated before; equal configurations give equal graphs.

    PATTERN and CLUSTER are drawn as in Dwivedi et al. 2020; superpixels are points that neighbours keep away from
    each other, with features that depend on the class. The metrics are those of the sets they stand for: macro
    F1 for scenes, else accuracy.

    Raises:
        DatasetError: too large for the machine's memory or disk.
    """
    import torch

    shape = PRESETS[config.preset]
    sizes = _sizes(shape, config.scale)
    name = _synthetic.scaled(config.preset, config.scale)
    nodes, edges = shape.nodes * sum(sizes), shape.edges * sum(sizes)
    memory = PEAK_BYTES_PER_EDGE * edges + 16 * nodes * (shape.features + 2)
    disk = 8 * edges + 4 * nodes * (shape.features + 2)
    _synthetic.check_fits(name, memory, disk, where)
    generate = partial(_draw_graphs.generate, shape, sum(sizes), config.seed)
    return GraphsDataset(
        name,
        **_synthetic.generated(_folder(config, sizes, where), generate),
        parts=dict(zip(PARTS, torch.arange(sum(sizes)).split(sizes), strict=True)),
        target="class",
        num_outputs=shape.classes,
        metric="macro F1" if shape.kind == "scene" else "accuracy",
        per_node=shape.kind != "image",
        made_up=["graphs", "features", "labels", "split"],
    )


def _sizes(shape: Shape, scale: float) -> list[int]:
    """Graphs in each part, at least one."""
    return [max(1, round(getattr(shape, part) * scale)) for part in PARTS]


def _folder(config: Config, sizes: list[int], where: Roots) -> Path:
    shape = sorted(asdict(PRESETS[config.preset]).items())
    return _synthetic.folder(where, config.preset, _draw_graphs.VERSION, shape, sum(sizes), config.seed)
