"""Datasets: one file per source, each with a `Config`, `parse(spec)`, `listing(root)` and `load(config, roots)`."""

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

    @property
    def num_nodes(self) -> int:
        return self.x.size(0)

    @property
    def multilabel(self) -> bool:
        return self.y.dim() == 2

    @property
    def label(self) -> str:
        """The name as every table shows it, with what is made up."""
        return f"{self.name} ({', '.join(self.made_up)} synthetic)" if self.made_up else self.name


@dataclass(frozen=True)
class Roots:
    """Where datasets are read and where processed files go; `raw` may be read-only."""

    raw: Path
    cache: Path


def roots(data_root: Path | None = None) -> Roots:
    """`data_root`, else `GNNBENCH_DATA`, else the platform's cache folder; processed files go to the cache."""
    cache = Path(os.environ.get("GNNBENCH_CACHE") or platformdirs.user_cache_path("gnnbench"))
    raw = data_root or os.environ.get("GNNBENCH_DATA")
    return Roots(Path(raw) if raw else cache / "data", cache)


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


def load(config: DatasetConfig, where: Roots) -> NodeDataset:
    """Load and check the dataset that `config` describes.

    Raises:
        DatasetError: missing, corrupt or unfit for training.
    """
    from gnnbench.datasets import _prepare

    return _prepare.finish(registry.find("datasets", config.source).load(config, where), config)
