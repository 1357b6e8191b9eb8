"""Your own graph of several types: a folder with a file of edges for each relation, and files for each type."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnnbench.datasets import _prepare, _prepare_typed, _raw, _tables
from gnnbench.datasets._typed import TypedDataset
from gnnbench.errors import DatasetError

BETWEEN = "__"  # source, name and destination in the name of a file of edges
TEXT = (".csv", ".tsv", ".txt", ".edges")
EDGES = {".npz": _tables.read_npz, **dict.fromkeys(TEXT, _tables.read_edge_list)}
OF_TYPE = re.compile(r"(.+)\.(x|y|split)\.(.+)")
ENDINGS = ("npy", "npz", *(text + packed for text in ("csv", "tsv", "txt") for packed in ("", ".gz")))
READERS: dict[str, Callable[[Path], Any]] = {  # of what is known of a type, by what stands behind its name
    "x": _tables.read_matrix,
    "y": _tables.read_matrix,
    "split": _tables.read_split,
}


def is_typed(folder: Path) -> bool:
    """Return whether a folder holds files of relations."""
    return any(BETWEEN in path.name and _raw.suffix(path) in EDGES for path in folder.iterdir())


def read(folder: Path) -> TypedDataset:
    """Read `SOURCE__NAME__DESTINATION.csv` for each relation, and `TYPE.x.npy`, `TYPE.y.csv`, `TYPE.split.txt`.

    A type has as many nodes as rows of features or labels, or else as edges name.

    Raises:
        DatasetError: a name that is no relation's or of no type; a file that is broken, or does not fit others.
    """
    import torch
    from torch_geometric.data import HeteroData

    name, data = folder.resolve().name, HeteroData()
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    edges: dict[tuple[str, str, str], Path] = {}
    for path in files:
        if BETWEEN in path.name and _raw.suffix(path) in EDGES:
            _once(edges, _relation(path), path)
    types = list(dict.fromkeys(kind for source, _, destination in edges for kind in (source, destination)))
    largest = dict.fromkeys(types, -1)
    for relation, path in edges.items():
        edge_index = _raw.read(path, EDGES[_raw.suffix(path)])["edge_index"]
        data[relation].edge_index = torch.from_numpy(edge_index)
        for kind, ids in zip((relation[0], relation[2]), edge_index, strict=True):
            largest[kind] = max(largest[kind], int(ids.max(initial=-1)))
    given: dict[str, dict[str, Path]] = {kind: {} for kind in types}
    for path in files:
        if BETWEEN not in path.name and (found := OF_TYPE.fullmatch(path.name)):
            kind, what, ending = found.groups()
            if kind not in types:
                raise DatasetError(
                    f"{path}: is of type {kind!r}, which no relation has; types are {', '.join(types)}"
                )
            if ending not in ENDINGS:
                raise DatasetError(f"{path}: ends in .{ending}, but may in .{', .'.join(ENDINGS)}; remove it")
            _once(given[kind], what, path)
    for kind, paths in given.items():
        if "split" in paths and "y" not in paths:
            raise DatasetError(f"{paths['split']}: splits nodes without labels; add {kind}.y.csv, or remove it")
        values = {what: _raw.read(path, READERS[what]) for what, path in paths.items()}
        store = data[kind]
        if "x" in values:
            store.x = torch.from_numpy(values["x"].astype("float32"))
        if "y" in values:
            store.y = _prepare.targets(str(paths["y"]), torch.from_numpy(values["y"].astype("float64")))
        sizes = [len(store[key]) for key in ("x", "y") if key in store]
        store.num_nodes = max(sizes, default=largest[kind] + 1)
        for part, each in values.get("split", {}).items():
            store[part] = _tables.mask(paths["split"], each, store.num_nodes)
    return _prepare_typed.of(name, data)


def _once(known: dict[Any, Path], key: Any, path: Path) -> None:
    if key in known:
        raise DatasetError(f"{path}: is the second file of its kind beside {known[key].name}; remove one of them")
    known[key] = path


def _relation(path: Path) -> tuple[str, str, str]:
    parts = path.name.removesuffix(".gz").rpartition(".")[0].split(BETWEEN)
    if len(parts) != 3 or not all(parts):
        raise DatasetError(
            f"{path}: the name of a file of edges is SOURCE__NAME__DESTINATION, such as author__writes__paper.csv"
        )
    return parts[0], parts[1], parts[2]
