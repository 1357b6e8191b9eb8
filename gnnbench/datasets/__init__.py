"""Datasets: one file per source.

A source is a module with
    `Config(DatasetConfig)`: its keys;
    `SPECS`: short names to suggest after a typing error;
    `parse(spec)`: the keys that a short name stands for, or None where it is not one of this source;
    `listing(roots)`: a list of `Offer`;
    `load(config, roots)`: a `NodeDataset`, with [N, 0] features, labels of -1 and empty masks for what it lacks.

    _nodes       NodeDataset, what a source of one graph yields
    _graphs      GraphsDataset, what a source of many graphs yields
    _prepare     fills in what a source lacks, and checks all of it
    _reorder     other orders of nodes
    _describe    what `gnnbench datasets` says of them
    _raw _cache  files as users have them, and files kept between runs
    _pyg _tables _blockmodel   shared by the sources of PyG, of tables in text, and of synthetic graphs
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from gnnbench import registry
from gnnbench.config import DatasetConfig
from gnnbench.datasets._graphs import GraphsDataset
from gnnbench.datasets._nodes import NodeDataset
from gnnbench.errors import ConfigError, did_you_mean

__all__ = [
    "GraphsDataset",
    "NodeDataset",
    "Offer",
    "Roots",
    "listing",
    "load",
    "parse",
    "read",
    "reordered",
    "roots",
]


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
