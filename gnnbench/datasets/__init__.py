"""Datasets: one file per source.

A source is a module with
    `Config(DatasetConfig)`: its keys;
    `SPECS`: short names to suggest after a typing error;
    `parse(spec)`: the keys that a short name stands for, or None where it is not one of this source;
    `listing(roots)`: a list of `Offer`;
    `load(config, roots)`: a `NodeDataset`, with [N, 0] features, labels of -1 and empty masks for what it lacks.
What all sources share (filling in, checks) is `_prepare.finish`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from gnnbench import registry
from gnnbench.config import DatasetConfig
from gnnbench.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class NodeDataset:
    """One graph with node features, targets and a split.

    Attributes:
        name: what tables call it; a synthetic graph says so.
        edge_index: [2, E] int64, source and destination.
        x: [N, F] float32.
        y: [N] int64 class, -1 where unlabelled; or [N, T] float32 of zeros and ones (multi-label).
        train_mask, val_mask, test_mask: [N] bool, disjoint, only labelled nodes.
        num_classes: classes, or T.
        metric: name of what `score` returns.
        score: (logits [M, num_classes], y [M] or [M, T]) -> float, higher is better.
        made_up: what of this dataset is not real: any of "graph", "features", "labels", "split".
        notes: sentences that the user should see once.
        node_id: [N] int64, each node's id in the source, where `dataset.reorder` gave them other ones.
    """

    name: str
    edge_index: Tensor
    x: Tensor
    y: Tensor
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    num_classes: int
    metric: str
    score: Callable[[Tensor, Tensor], float]
    made_up: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    node_id: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        return self.x.size(0)

    @property
    def multilabel(self) -> bool:
        return self.y.dim() == 2

    @property
    def label(self) -> str:
        """The name as every table shows it, with what is made up; that of a synthetic graph says so itself."""
        if not self.made_up or "graph" in self.made_up:
            return self.name
        return f"{self.name} ({', '.join(self.made_up)} synthetic)"


@dataclass(frozen=True)
class Roots:
    """Where datasets are read and where processed files go; `raw` may be read-only."""

    raw: Path
    cache: Path


@dataclass(frozen=True)
class Offer:
    """A dataset that can be asked for; counts are None until it was loaded, `where` until it is on disk."""

    spec: str
    nodes: int | None
    edges: int | None  # directed: an undirected edge counts twice
    where: Path | None


def roots(data_root: Path | None = None) -> Roots:
    """`data_root`, else `GNNBENCH_DATA`, else the platform's cache folder; processed files go to the cache."""
    cache = Path(os.environ.get("GNNBENCH_CACHE") or platformdirs.user_cache_path("gnnbench")).expanduser()
    raw = data_root or os.environ.get("GNNBENCH_DATA")
    return Roots(Path(raw).expanduser() if raw else cache / "data", cache)


def parse(spec: str) -> dict[str, Any]:
    """The dataset section that a short name stands for: `cora`, `ogbn-arxiv`, `synthetic:reddit:0.05`, a file.

    Raises:
        ConfigError: no source knows the name.
    """
    known: list[str] = []
    for source in registry.names("datasets"):
        module = registry.find("datasets", source)
        if (section := module.parse(spec)) is not None:
            return {"source": source, **section}
        known += module.SPECS
    raise ConfigError(f"unknown dataset {spec!r}{did_you_mean(spec, known)}")


def listing(where: Roots) -> list[tuple[str, Offer]]:
    """Every source's offers, each with the name of its source."""
    return [
        (source, offer)
        for source in registry.names("datasets")
        for offer in registry.find("datasets", source).listing(where)
    ]


def load(config: DatasetConfig, where: Roots) -> NodeDataset:
    """Read, check and reorder the dataset that `config` describes.

    Raises:
        DatasetError: missing, corrupt or unfit for training.
    """
    return reordered(read(config, where), config)


def read(config: DatasetConfig, where: Roots) -> NodeDataset:
    """The same with its nodes in the order of the source."""
    from gnnbench.datasets import _prepare

    return _prepare.finish(registry.find("datasets", config.source).load(config, where), config)


def reordered(dataset: NodeDataset, config: DatasetConfig) -> NodeDataset:
    """`dataset` with its nodes in the order that `config.reorder` names; a cost of its own, and so a step."""
    from gnnbench.datasets import _reorder

    return dataset if config.reorder == "none" else _reorder.reordered(dataset, config.reorder)
