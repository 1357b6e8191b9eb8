"""Your own graph: Matrix Market, `.npz` or an edge list, and what is beside it; many graphs; links; types."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import Field

from gnnbench.config import Count
from gnnbench.datasets import AnyDataset, Offer, Roots, _disk
from gnnbench.datasets._kinds import GraphsConfig
from gnnbench.errors import DatasetError

SUFFIXES = (".mtx", ".npz", ".txt", ".csv", ".tsv", ".edges", ".edgelist")
MANY = ".pt"
NAMES = ("links.csv", "links.csv.gz")
BESIDE = {"features": "x", "labels": "y", "split": "split"}


class Config(GraphsConfig):
    """Where the files are, relative to the working folder or the data root."""

    source: str = "files"
    path: Path = Field(description="a graph; many, in a .pt of PyG or a folder; links.csv; a folder by relation")
    features: Path | None = Field(None, description="[N, F] numbers; .npy, .npz or text")
    labels: Path | None = Field(None, description="[N] classes from 0, -1 for none, or [N, T] of 0 and 1")
    split: Path | None = Field(None, description="[N] words train, val, test or none; or .npz of three masks")
    classes: Count = Field(0, description="number of classes; 0: as many as the labels name")
    random_features: Count = 64
    random_labels: Count = 8


def parse(spec: str) -> dict[str, Any] | None:
    """Anything that ends like a graph file or links.csv, or those gzipped; a folder, with a slash at its end."""
    from gnnbench.datasets import mapped

    is_folder = spec.endswith("/") and mapped.parse(spec) is None
    if is_links(Path(spec)):
        return {"path": spec, "task": "links"}
    return {"path": spec} if _disk.suffix(Path(spec)) in (*SUFFIXES, MANY) or is_folder else None


def listing(where: Roots) -> list[Offer]:
    """Graph files in the data root and in its folder `edgelists`, but for `.npz`, which may hold anything."""
    result = [*where.raw.glob("*"), *(where.raw / "edgelists").rglob("*")]
    return [
        Offer(str(path.relative_to(where.raw)), None, None, path)
        for path in sorted(result)
        if path.is_file() and _disk.suffix(path) in SUFFIXES and _disk.suffix(path) != ".npz"
    ]


def load(config: Config, where: Roots) -> AnyDataset:
    """Read the graph and whatever stands beside it, or many graphs, links or types, as `_own` has them."""
    from gnnbench.datasets import _own

    path = _disk.located(config.path, where.raw, "file", Path.exists)
    if path.is_dir() and _own.is_typed(path):
        _check_unused(config, BESIDE, f"{path} holds those of each type")
        return _own.read_types(path)
    if path.is_dir() or _disk.suffix(path) == MANY:
        _check_unused(config, BESIDE, f"{path} holds many, with their own")
        return _own.read_graphs(path, config.classes)
    is_list = config.task == "links" and is_links(path)
    if is_list:
        _check_unused(config, ("labels", "split"), f"{path} lists links, with their parts")
    elif _disk.suffix(path) not in SUFFIXES:
        raise DatasetError(
            f"{path}: is not a kind of graph file known here; allowed: {', '.join((*SUFFIXES, MANY))}"
        )
    beside = {
        name: _disk.located(given, where.raw, "file", Path.is_file)
        for key, name in BESIDE.items()
        if (given := getattr(config, key)) is not None
    }
    return _own.read_links(path, beside) if is_list else _own.read_graph(path, beside, config.classes)


def is_links(path: Path) -> bool:
    """Return whether the name of a file says that it lists links: it ends with `links.csv`, gzipped or not."""
    return path.name.lower().endswith(NAMES)


def _check_unused(config: Config, keys: Iterable[str], why: str) -> None:
    if given := [key for key in keys if getattr(config, key) is not None]:
        raise DatasetError(f"dataset.{given[0]}: is for a file of one graph; {why}")
