"""Your own graph: Matrix Market, `.npz` or an edge list, and what is beside it; many graphs; links; types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gnnbench.config import Count
from gnnbench.datasets import (
    AnyDataset,
    GraphsDataset,
    LinksDataset,
    NodeDataset,
    Offer,
    Roots,
    _prepare,
    _raw,
    _tables,
    _typed_files,
    _union,
)
from gnnbench.datasets._graphs import PARTS, GraphsConfig
from gnnbench.datasets._links import EVALUATED
from gnnbench.errors import DatasetError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from torch import Tensor

SUFFIXES = (".mtx", ".npz", ".txt", ".csv", ".tsv", ".edges", ".edgelist")
MANY = ".pt"
SPECS: list[str] = []
SPARSEST = 100  # nodes per edge beyond which ids are taken to have gaps
NAMES = ("links.csv", "links.csv.gz")
COLUMNS = ("source", "destination", "part")
OPTIONAL = ("type", "label")
MESSAGE = "message"  # in place of a part: an edge that is no link
ADJACENCY = "_A.txt"


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
    return {"path": spec} if _raw.suffix(Path(spec)) in (*SUFFIXES, MANY) or is_folder else None


def listing(where: Roots) -> list[Offer]:
    """Graph files in the data root and in its folder `edgelists`, but for `.npz`, which may hold anything."""
    result = [*where.raw.glob("*"), *(where.raw / "edgelists").rglob("*")]
    return [
        Offer(str(path.relative_to(where.raw)), None, None, path)
        for path in sorted(result)
        if path.is_file() and _raw.suffix(path) in SUFFIXES and _raw.suffix(path) != ".npz"
    ]


def load(config: Config, where: Roots) -> AnyDataset:
    """Read the graph and whatever stands beside it; see `read_graphs` for many, `read_links`, `_typed_files.read`.

    Raises:
        DatasetError: a file is missing, corrupt, of an unknown kind or does not fit the others.
    """
    path = _locate(config.path, where, folders=True)
    if path.is_dir() and _typed_files.is_typed(path):
        _check_unused(config, ("features", "labels", "split"), f"{path} holds those of each type")
        return _typed_files.read(path)
    if path.is_dir() or _raw.suffix(path) == MANY:
        _check_unused(config, ("features", "labels", "split"), f"{path} holds many, with their own")
        return read_graphs(path, config.classes)
    if config.task == "links" and is_links(path):
        _check_unused(config, ("labels", "split"), f"{path} lists links, with their parts")
        return _links(path, config, where)
    return _one_graph(path, config, where)


def _check_unused(config: Config, keys: Sequence[str], why: str) -> None:
    if given := [key for key in keys if getattr(config, key) is not None]:
        raise DatasetError(f"dataset.{given[0]}: is for a file of one graph; {why}")


def _links(path: Path, config: Config, where: Roots) -> LinksDataset:
    parts = _raw.read(path, read_links)
    arrays = {"edge_index": parts.pop("pairs").numpy()} | _beside(config, where)
    x = _features(config.features or path, arrays.get("x"), _num_nodes(path, arrays))
    return LinksDataset(_plain_name(path), x=x, **parts)


def _one_graph(path: Path, config: Config, where: Roots) -> NodeDataset:
    import torch

    arrays = _raw.read(path, _reader(path))
    if "x" in arrays and arrays["x"].ndim:  # beside its own features, an edge beyond them is out of range
        arrays.setdefault("num_nodes", len(arrays["x"]))
    arrays |= _beside(config, where)
    nodes = _num_nodes(path, arrays)
    y = torch.full((nodes,), -1)
    if "y" in arrays:
        y = _prepare.targets(str(config.labels or path), torch.from_numpy(arrays["y"].astype("float64")))
    named = config.split or path
    masks: dict[str, Any] = {part: _tables.mask(named, arrays.get(part), nodes) for part in _prepare.PARTS}
    if config.split is not None and not bool(masks["train_mask"].any()):
        raise DatasetError(f"{config.split}: the training split is empty; name some nodes 'train'")
    return NodeDataset(
        _plain_name(path),
        torch.from_numpy(arrays["edge_index"]),
        _features(config.features or path, arrays.get("x"), nodes),
        y,
        **masks,
        num_classes=config.classes or _num_classes(config.labels or path, y),
        notes=[f"the weights in {path.name} are not used"] if arrays.get("weighted") else [],
    )


def _beside(config: Config, where: Roots) -> _tables.Arrays:
    """Features, labels and split, where a file of them is given."""
    arrays: _tables.Arrays = {}
    if config.features is not None:
        arrays["x"] = _raw.read(_locate(config.features, where), _tables.read_matrix)
    if config.labels is not None:
        arrays["y"] = _raw.read(_locate(config.labels, where), _tables.read_matrix)
    if config.split is not None:
        arrays |= _raw.read(_locate(config.split, where), _tables.read_split)
    return arrays


def _plain_name(path: Path) -> str:
    return path.name[: path.name.lower().rindex(_raw.suffix(path))]


def _locate(path: Path, where: Roots, folders: bool = False) -> Path:
    for candidate in (path.expanduser(), where.raw / path):
        if candidate.is_file() or (candidate.is_dir() and folders):
            return candidate
    raise DatasetError(f"{path}: there is no such file, neither here nor in {where.raw}; check the path")


def _reader(path: Path) -> Callable[[Path], _tables.Arrays]:
    suffix = _raw.suffix(path)
    if suffix not in SUFFIXES:
        raise DatasetError(
            f"{path}: is not a kind of graph file known here; allowed: {', '.join((*SUFFIXES, MANY))}"
        )
    return {".mtx": _tables.read_mtx, ".npz": _tables.read_npz}.get(suffix, _tables.read_edge_list)


def _num_nodes(path: Path, arrays: _tables.Arrays) -> int:
    """As many as the graph's file says, else as edges name or as have features or labels."""
    edges = arrays["edge_index"]
    beside = [len(arrays[key]) for key in ("x", "y") if key in arrays and arrays[key].ndim]
    nodes = int(arrays.get("num_nodes", max([*beside, int(edges.max(initial=-1)) + 1])))
    if not beside and nodes > SPARSEST * (edges.shape[1] + 10):
        raise DatasetError(
            f"{path}: {edges.shape[1]} edges do not need {nodes} nodes; number the nodes from 0 without gaps"
        )
    return nodes


def _features(path: Path, values: np.ndarray | None, nodes: int) -> Tensor:
    import torch

    if values is None:
        return torch.empty(nodes, 0)
    if values.ndim != 2 or len(values) != nodes:
        raise DatasetError(
            f"{path}: features have shape {list(values.shape)}, but the graph has {nodes} nodes; give one row each"
        )
    return torch.from_numpy(values.astype("float32"))


def _num_classes(path: Path, y: Tensor) -> int:
    if y.dim() == 2:
        return y.size(1)
    classes = int(y.max()) + 1 if y.numel() else 0
    if classes > max(len(y), 2):
        raise DatasetError(f"{path}: label {classes - 1} among {len(y)} nodes; number the classes from 0")
    return classes


def is_links(path: Path) -> bool:
    """Return whether the name of a file says that it lists links: it ends with `links.csv`, gzipped or not."""
    return path.name.lower().endswith(NAMES)


def read_links(path: Path) -> dict[str, Any]:
    """Read arguments of `LinksDataset`, but for its name and x, and all pairs [2, P] that the file names.

    Messages run over lines of part `message`; where there are none, over training links in both directions.

    Raises:
        DatasetError: a column, a part, a label or an id that cannot be.
    """
    import pandas as pd
    import torch

    table = pd.read_csv(path, skipinitialspace=True, comment="#")
    table.columns = [str(name).strip().lower() for name in table.columns]
    named = sorted({*table.columns})
    if not {*COLUMNS} <= {*named} <= {*COLUMNS, *OPTIONAL}:
        raise DatasetError(
            f"{path}: has columns {', '.join(named)}; a file of links needs {', '.join(COLUMNS)}, and may have "
            f"{' and '.join(OPTIONAL)}"
        )
    part = table["part"].astype(str).str.strip().str.lower().replace(_tables.SPLIT_WORDS)
    _check(path, part, part.isin(["train", *EVALUATED, MESSAGE]), f"train, val, test, {MESSAGE}")
    label = table["label"] if "label" in table else part.eq(part).astype(int)
    _check(path, label, label.isin([0, 1]), "1 for a link, 0 for a pair that is none")
    negative = part[label.eq(0)]
    _check(path, negative, negative.isin(EVALUATED), "val, test beside label 0; negatives of training are drawn")
    pairs = torch.from_numpy(_tables.whole_edges(path, table[["source", "destination"]].to_numpy().T))

    def where(name: str, kind: int = 1) -> Tensor:
        return torch.from_numpy((part.eq(name) & label.eq(kind)).to_numpy())

    positives = {name: pairs[:, where(name)] for name in ("train", *EVALUATED)}
    messages, train = pairs[:, where(MESSAGE)], positives["train"]
    result: dict[str, Any] = {
        "edge_index": messages if messages.numel() else torch.cat([train, train.flip(0)], 1).unique(dim=1),
        "positives": positives,
        "negatives": {name: pairs[:, where(name, 0)] for name in EVALUATED} if label.eq(0).any() else {},
        "pairs": pairs,
    }
    if "type" in table:
        typed = pd.to_numeric(table["type"], errors="coerce").where(part.ne(MESSAGE) & label.eq(1), 0)
        is_type = (typed >= 0) & (typed == typed.round()) & (typed < len(table))
        _check(path, table["type"], is_type, "whole numbers from 0 without gaps")
        kinds = torch.from_numpy(typed.astype("int64").to_numpy())
        result["relations"] = {name: kinds[where(name)] for name in positives}
        result["num_relations"] = int(kinds.max()) + 1
    return result


def _check(path: Path, column: pd.Series[Any], fits: pd.Series[bool], allowed: str) -> None:
    if not fits.all():
        raise DatasetError(f"{path}: found {column.name} {column[~fits].iloc[0]}; allowed: {allowed}")


def read_graphs(path: Path, classes: int) -> GraphsDataset:
    """Graphs in a file, or in a folder of such files for each part of the split, or of TUDataset's.

    A file is what `torch_geometric.data.InMemoryDataset.save` writes of a list of `Data`. Their `y` tells the
    task: whole numbers are classes of graphs, or of nodes where there is one for each; the real numbers 0, 1 and
    NaN are answers to yes-or-no questions; other real numbers are values to regress.

    Raises:
        DatasetError: nothing of the kind is there; corrupt; or classes that are not numbered from 0.
    """
    saved = [path / f"{split}.pt" for split in PARTS if (path / f"{split}.pt").is_file()]
    texts = sorted(path.glob(f"*{ADJACENCY}"))
    parts: dict[str, Tensor] = {}
    if path.is_file():
        union = _saved(path)
    elif saved:
        union, parts = _union.joined(path.name, {file.stem: _saved(file) for file in saved})
    elif texts:
        union = _tu(path, texts[0].name.removesuffix(ADJACENCY))
    else:
        raise DatasetError(f"{path}: holds neither train.pt, val.pt and test.pt nor NAME_A.txt and its companions")
    name = path.resolve().name.removesuffix(".pt")
    y, target = union.task()
    if target == "value" and bool(((y == 0) | (y == 1) | y.isnan()).all()):
        target = "labels"
    largest = int(y.max()) if target == "class" and y.numel() else -1
    if not classes and largest >= max(len(y), 2):
        raise DatasetError(f"{name}: class {largest} among {len(y)} targets; number the classes from 0")
    outputs = (classes or largest + 1) if target == "class" else y.size(1)
    union.x, union.edge_attr = union.x.float(), None if union.edge_attr is None else union.edge_attr.float()
    graphs, nodes = union.graph_ptr.numel() - 1, union.x.size(0)
    return GraphsDataset(
        name,
        **union.graphs(),
        y=y,
        parts=parts,
        target=target,
        num_outputs=outputs,
        per_node=len(y) == nodes != graphs,
    )


def _saved(path: Path) -> _union.Union:
    import torch
    from torch_geometric.data import Data

    with _raw.reading(path.name, [path]), _raw.quiet():
        fields, slices, *_ = torch.load(path)
        return _union.of(path.name, SimpleNamespace(_data=Data.from_dict(fields), slices=slices))


def _tu(folder: Path, name: str) -> _union.Union:
    from torch_geometric.io import read_tu_data

    files: Sequence[Path] = sorted(folder.glob(f"{name}_*.txt"))
    with _raw.reading(name, files), _raw.quiet():
        data, slices, _ = read_tu_data(str(folder), name)
        return _union.of(name, SimpleNamespace(_data=data, slices=slices))
