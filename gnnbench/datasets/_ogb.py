"""ogb's own loaders, run unattended, for datasets of nodes, of graphs and of links."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from gnnbench.datasets import _cache, _raw
from gnnbench.datasets._kinds import PARTS

if TYPE_CHECKING:
    from gnnbench.datasets import Roots

LOADERS = {  # by the first letters of a name: package of ogb, class
    "ogbn": ("nodeproppred", "PygNodePropPredDataset"),
    "ogbg": ("graphproppred", "PygGraphPropPredDataset"),
    "ogbl": ("linkproppred", "PygLinkPropPredDataset"),
}
OUR_METRICS = {"acc": "accuracy", "rmse": "negative RMSE"}  # what `_metrics` calls ogb's


class Known(NamedTuple):
    """Counts of a dataset over all graphs, None where they are not published, and keys that it sets."""

    nodes: int | None = None
    edges: int | None = None
    graphs: int | None = 1
    keys: Mapping[str, Any] = {}

    def folder(self, name: str, where: Roots) -> Path | None:
        """Where it is on disk, if only but for the node features, as those can be filled in."""
        return _on_disk(name, where)


def meta(name: str) -> dict[str, str]:
    """OGB's own description of a dataset, `metric` in our words; all values are text."""
    import pandas as pd

    with _raw.quiet():
        package = importlib.import_module(_package(name))
    table = pd.read_csv(Path(str(package.__file__)).parent / "master.csv", index_col=0, keep_default_na=False)
    facts = {str(key): str(value) for key, value in table[name].items()}
    return facts | {"metric": OUR_METRICS.get(facts["eval metric"], facts["eval metric"])}


def needed(name: str) -> tuple[str, ...]:
    """Files without which nothing can be loaded; splits are checked when read, as they come in two forms."""
    own = {
        "ogbn-papers100M": ("raw/data.npz", "raw/node-label.npz"),
        "ogbn-mag": ("raw/num-node-dict.csv.gz", "raw/triplet-type-list.csv.gz"),
        "ogbl-vessel": ("raw/data.npz",),
    }
    if name in own:
        return (*own[name], "split")
    edges = ("raw/edge.csv.gz", "raw/num-node-list.csv.gz", "raw/num-edge-list.csv.gz")
    labels = {"ogbn": ("raw/node-label.csv.gz",), "ogbg": ("raw/graph-label.csv.gz",), "ogbl": ()}
    atoms = ("raw/node-feat.csv.gz", "raw/edge-feat.csv.gz") if is_molecular(name) else ()
    return (*edges, *labels[name[:4]], *atoms, "split")


def is_molecular(name: str) -> bool:
    """Return whether features are OGB's categories of atoms and bonds."""
    return name.startswith("ogbg-mol")


def load(name: str, where: Roots, stand_in: str) -> tuple[Any, dict[str, Any]]:
    """The dataset, downloaded if necessary and processed into the cache by ogb, and each part of its split.

    Raises:
        DatasetError: the download failed, with `stand_in` for a remedy; or files are corrupt.
    """
    import ogb
    import torch
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    folder = _found(name, where, stand_in)
    files = sorted(path for part in ("raw", "split") for path in (folder / part).rglob("*") if path.is_file())
    key = _cache.fingerprint(files, ogb.__version__)

    def construct(processed: Path) -> Any:
        # Raw files that are missing must not start a download here: `_found` has decided that.
        members = {"processed_dir": property(lambda self: str(processed)), "_download": lambda self: None}
        return _dataset(name, folder.parent, **members)

    # ogb saves `Data` objects whole, of which PyG lists but the outermost class as safe.
    parts = torch.serialization.safe_globals([DataEdgeAttr, DataTensorAttr, GlobalStorage])
    with _raw.reading(name, files), _raw.quiet(), _unattended(name), parts:
        dataset = construct(_cache.built(where.cache / "ogb" / f"{name}-{key}", construct))
        split = dataset.get_edge_split() if name.startswith("ogbl") else dataset.get_idx_split()
        return dataset, dict(zip(PARTS, (split[part] for part in ("train", "valid", "test")), strict=True))


def _found(name: str, where: Roots, stand_in: str) -> Path:
    """The folder with all files that are needed, downloaded if necessary."""
    if folder := _on_disk(name, where):
        return folder
    known = _folders(name, where)
    nearest = min(known, key=lambda folder: (len(_missing(folder, name)), folder.name.endswith("_pyg")))
    target = _raw.writable_root(where.raw, where.cache) / "ogb" / name.replace("-", "_")

    def download(temporary: Path) -> Path:
        with _unattended(name):
            return Path(_dataset(name, temporary, _process=_raw.stop).root)

    _raw.fetch(name, target, f"no {', '.join(_missing(nearest, name))} in {nearest}", stand_in, download)
    return target


def _on_disk(name: str, where: Roots) -> Path | None:
    return next((folder for folder in _folders(name, where) if not _missing(folder, name)), None)


def _folders(name: str, where: Roots) -> list[Path]:
    """Where the dataset is looked for, best first; ogb itself prefers a folder with the suffix `_pyg`."""
    own = name.replace("-", "_")
    roots = (where.raw / "ogb", where.raw, where.cache / "data" / "ogb")
    return [root / f"{own}{suffix}" for root in roots for suffix in ("_pyg", "")]


def _missing(folder: Path, name: str) -> list[str]:
    return [file for file in needed(name) if not (folder / file).exists()]


def _package(name: str) -> str:
    return f"ogb.{LOADERS[name[:4]][0]}"


def _dataset(name: str, root: Path, **members: Any) -> Any:
    loader = getattr(importlib.import_module(_package(name)), LOADERS[name[:4]][1])
    return _raw.construct(loader, members, name=name, root=str(root))


@contextlib.contextmanager
def _unattended(name: str) -> Iterator[None]:
    """Answer ogb's questions: yes to the size of a download, no to replacing files by a newer release."""
    module = importlib.import_module(f"{_package(name)}.dataset_pyg")
    answers: dict[str, Any] = {"decide_download": lambda url: True, "input": lambda question: "n"}
    with mock.patch.multiple(module, create=True, **answers):
        yield
