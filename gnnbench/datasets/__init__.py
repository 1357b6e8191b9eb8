"""Datasets: one file per source.

A source is a module with
    `Config(DatasetConfig)`: its keys;
    `KNOWN`: short names, each with the counts and the folder that an `Offer` has, and with keys, as `pyg.Known`;
    `parse(spec)`: the keys that a short name stands for, or None where it is not one of this source; needed only
        where these are not `name` and the keys in `KNOWN`;
    `listing(roots)` and perhaps `SPECS`: a list of `Offer`, and names to suggest after a typing error; needed only
        without `KNOWN`;
    `load(config, roots)`: a `NodeDataset`, with [N, 0] features, labels of -1 and empty masks for what it lacks;
        or a `GraphsDataset`, with [N, 0] features, classes of -1 and no splits;
        or a `LinksDataset`, with [N, 0] features and without negatives;
        or a `TypedDataset`, with labels of -1 and empty masks for what it lacks;
        raises DatasetError, as all below: one sentence with the remedy where data are missing, corrupt or unfit.

    _kinds       NodeDataset and the like: what sources of one graph, many graphs, links and types yield
    _prepare     fills in what a source of one graph lacks, of nodes, types or links, and checks all of it
    _prepare_graphs   the same for many graphs, and takes them over from PyG
    _reorder     other orders of nodes
    _describe    what `gnnbench datasets info` says of one
    _metrics     metrics by their names
    _disk        files as users have them, and what pickles among them may hold; files kept between runs
    _own         your own files, read
    pyg, ogb, synthetic and mapped also hold what other sources, and partitions, share with them
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import platformdirs
from pydantic import AfterValidator

from gnnbench import registry
from gnnbench.config import DatasetConfig
from gnnbench.datasets._kinds import GraphsDataset as GraphsDataset
from gnnbench.datasets._kinds import LinksDataset as LinksDataset
from gnnbench.datasets._kinds import MappedDataset as MappedDataset
from gnnbench.datasets._kinds import NodeDataset as NodeDataset
from gnnbench.datasets._kinds import TypedDataset as TypedDataset
from gnnbench.errors import ConfigError, DatasetError, did_you_mean

AnyDataset = NodeDataset | GraphsDataset | LinksDataset | TypedDataset
Data = TypeVar("Data", bound=AnyDataset)


@dataclass(frozen=True)
class Roots:
    """Where datasets are read and where processed files go; `raw` may be read-only."""

    raw: Path
    cache: Path


@dataclass(frozen=True)
class Offer:
    """A dataset that can be asked for; counts (over its graphs) are None until known, `where` until on disk."""

    spec: str
    nodes: int | None
    edges: int | None  # directed: an undirected edge counts twice
    where: Path | None
    graphs: int | None = 1
    source: str = ""  # which `listing` fills in

    @property
    def on_disk(self) -> bool:
        return self.where is not None


def roots(data_root: str | Path | None = None) -> Roots:
    """`data_root`, else `GNNBENCH_DATA`, else the platform's cache folder; processed files go to the cache."""
    cache = Path(os.environ.get("GNNBENCH_CACHE") or platformdirs.user_cache_path("gnnbench")).expanduser()
    raw = data_root or os.environ.get("GNNBENCH_DATA")
    return Roots(Path(raw).expanduser() if raw else cache / "data", cache)


def one_of(noun: str, names: Collection[str]) -> AfterValidator:
    """The check of a key of a configuration that holds one of `names`."""

    def check(value: str) -> str:
        if value not in names:
            raise ValueError(f"unknown {noun} {value!r}{did_you_mean(value, names)}")
        return value

    return AfterValidator(check)


def parse(spec: str) -> dict[str, Any]:
    """The dataset section that a short name stands for: `cora`, `ogbn-arxiv`, `synthetic:reddit:0.05`, a file.

    Raises:
        ConfigError: no source knows the name.
    """
    known: list[str] = []
    for source in registry.names("datasets"):
        module = registry.find("datasets", source)
        given = vars(module).get("parse") or partial(_known, module.KNOWN)
        if (section := given(spec)) is not None:
            return {"source": source, **section}
        known += [name for table in ("KNOWN", "SPECS") for name in vars(module).get(table, ())]
    raise ConfigError(f"unknown dataset {spec!r}{did_you_mean(spec, known)}")


def _known(items: Mapping[str, Any], spec: str) -> dict[str, Any] | None:
    """The keys of a source that knows `items`, in any case and with `_` for `-`; None for another name."""
    name = {name.lower(): name for name in items}.get(spec.lower().replace("_", "-"))
    return {"name": name, **items[name].keys} if name else None


def listing(where: Roots) -> list[Offer]:
    """Every source's offers."""
    offers = []
    for source in registry.names("datasets"):
        module = registry.find("datasets", source)
        if "listing" in vars(module):
            offers += [replace(offer, source=source) for offer in module.listing(where)]
        else:
            offers += [
                Offer(spec, item.nodes, item.edges, item.folder(spec, where), item.graphs, source)
                for spec, item in module.KNOWN.items()
            ]
    return offers


def load(config: DatasetConfig, where: Roots) -> AnyDataset:
    """Read, check and reorder the dataset that `config` describes.

    Raises:
        DatasetError: missing, corrupt or unfit for training.
    """
    return reordered(read(config, where), config)


def read(config: DatasetConfig, where: Roots) -> AnyDataset:
    """Read a dataset with its nodes in the order of the source."""
    from gnnbench.datasets import _prepare, _prepare_graphs

    dataset: AnyDataset = registry.find("datasets", config.source).load(config, where)
    if isinstance(dataset, LinksDataset):
        _prepare.finish_graph(dataset, config)
        return _prepare.finish_links(dataset, config)
    if isinstance(dataset, TypedDataset):
        return _prepare.finish_typed(dataset, config)
    if config.embedding and config.task == "nodes":
        raise ConfigError(
            f"{dataset.name}: dataset.embedding is for task links and for types without features; set "
            "dataset.task=links too, or leave it out"
        )
    if isinstance(dataset, GraphsDataset):
        if config.task == "links":
            raise DatasetError(f"{dataset.name} holds many graphs, and links are of one; leave dataset.task out")
        return _prepare_graphs.finish(dataset, config)
    if config.task == "links":
        return _prepare.split_links(_prepare.finish(dataset, config), config)
    if isinstance(dataset, MappedDataset):
        return dataset  # fit for training when it was written; to look at all of it again would read all of it
    return _prepare.finish(dataset, config)


def single(dataset: AnyDataset) -> NodeDataset:
    """`dataset`, for what works on one graph alone; of links the graph of messages, of types all as one.

    Raises:
        DatasetError: it is many graphs.
    """
    if isinstance(dataset, LinksDataset | TypedDataset):
        return dataset.as_nodes()
    if isinstance(dataset, GraphsDataset):
        raise DatasetError(
            f"{dataset.name} holds {dataset.num_graphs:,} graphs, but this command works on one; give it a "
            f"dataset of one graph, such as cora or synthetic:reddit:0.05"
        )
    return dataset


def reordered(dataset: Data, config: DatasetConfig) -> Data:
    """`dataset` with its nodes in the order that `config.reorder` names; a cost of its own, and so a step."""
    if isinstance(dataset, NodeDataset | LinksDataset) and config.reorder != "none":
        from gnnbench.datasets import _reorder

        order = _reorder.order(dataset.edge_index, dataset.num_nodes, config.reorder)
        return cast(Data, dataset.renumbered(order))
    return dataset
