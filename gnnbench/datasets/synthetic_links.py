"""Synthetic graphs in the shapes of OGB's link datasets, with links that communities make likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from gnnbench.config import Positive
from gnnbench.datasets import LinksDataset, Offer, Roots, one_of, synthetic
from gnnbench.datasets._kinds import SPLITS
from gnnbench.datasets.synthetic import Shape

SPLIT = 1 << 33  # what a seed is used for, beside the purposes of `_prepare`


@dataclass(frozen=True)
class Preset:
    """A graph, and what is asked of its links."""

    graph: Shape  # degrees and communities, which are its classes, are not those of the dataset
    val: float  # share of the links
    test: float
    metric: str  # of the dataset


PRESETS = {
    "collab": Preset(Shape(235_868, 2_570_930, 128, 100, 700, 2.5, 1, 1, 1, 0.9, 0.0), 0.04, 0.04, "hits@50"),
    "ppa": Preset(Shape(576_289, 60_652_546, 58, 58, 3_000, 2.2, 1, 1, 1, 0.9, 0.0), 0.2, 0.1, "hits@100"),
    "ddi": Preset(Shape(4_267, 2_669_778, 0, 10, 2_200, 2.0, 1, 1, 1, 0.8, 0.0), 0.1, 0.1, "hits@20"),
}
SPECS = [f"synthetic:{preset}" for preset in PRESETS]


class Config(synthetic.Config):
    """A preset, scaled; the keys below `scale` replace its counts and are not scaled."""

    source: str = "synthetic_links"
    task: Literal["links"] = Field("links", description="links: tell edges from pairs that are none")
    preset: Annotated[str, one_of("preset", PRESETS)]
    classes: Positive | None = Field(None, description="communities")


def parse(spec: str) -> dict[str, Any] | None:
    """`synthetic:PRESET[:SCALE]` with one of these presets; without features, vectors of nodes are trained."""
    found = synthetic.parsed(spec, PRESETS)
    featureless = found is not None and not PRESETS[found["preset"]].graph.features
    return {**found, "embedding": 256} if found and featureless else found


def listing(where: Roots) -> list[Offer]:
    """The presets at scale 1."""
    return [synthetic.offer(Config(preset=name), preset.graph, where) for name, preset in PRESETS.items()]


def load(config: Config, where: Roots) -> LinksDataset:
    """Generate the graph, or map the one of before, and split its links; those of training carry messages."""
    import torch

    preset = PRESETS[config.preset]
    arrays = synthetic.arrays(config, preset.graph, where)
    edge_index = arrays["edge_index"]
    links = edge_index[:, edge_index[0] < edge_index[1]]
    generator = torch.Generator().manual_seed(SPLIT + config.seed)
    order = torch.randperm(links.size(1), generator=generator)
    val, test = (int(share * links.size(1)) for share in (preset.val, preset.test))
    chosen = order.split([links.size(1) - val - test, val, test])
    positives = {split: links[:, ids] for split, ids in zip(SPLITS, chosen, strict=True)}
    train = positives["train"]
    return LinksDataset(
        synthetic.name(config),
        edge_index=torch.cat([train, train.flip(0)], 1),
        x=arrays["x"],
        positives=positives,
        metric=preset.metric,
        synthetic_parts=["graph", "features", "split"],
    )
