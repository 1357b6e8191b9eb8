"""Your own graph: Matrix Market, `.npz` or an edge list, and what stands beside it; many graphs; or links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gnnbench.config import Count
from gnnbench.datasets import AnyDataset, LinksDataset, NodeDataset, Offer, Roots, _link_files
from gnnbench.datasets._graphs import GraphsConfig
from gnnbench.errors import DatasetError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

SUFFIXES = (".mtx", ".npz", ".txt", ".csv", ".tsv", ".edges", ".edgelist")
MANY = ".pt"
SPECS: list[str] = []
SPARSEST = 100  # nodes per edge beyond which ids are taken to have gaps


class Config(GraphsConfig):
    """Where the files are, relative to the working folder or the data root."""

    source: str = "files"
    path: Path = Field(description="the graph; or many, in a .pt of PyG or in a folder; or links.csv")
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
    if _link_files.is_links(Path(spec)):
        return {"path": spec, "task": "links"}
    return {"path": spec} if _suffix(Path(spec)) in (*SUFFIXES, MANY) or is_folder else None


def listing(where: Roots) -> list[Offer]:
    """Graph files in the data root and in its folder `edgelists`, but for `.npz`, which may hold anything."""
    result = [*where.raw.glob("*"), *(where.raw / "edgelists").rglob("*")]
    return [
        Offer(str(path.relative_to(where.raw)), None, None, path)
        for path in sorted(result)
        if path.is_file() and _suffix(path) in SUFFIXES and _suffix(path) != ".npz"
    ]


def load(config: Config, where: Roots) -> AnyDataset:
    """Read the graph and whatever stands beside it; see `_graph_files` for many graphs, `_link_files` for links.

    Raises:
        DatasetError: a file is missing, corrupt, of an unknown kind or does not fit the others.
    """
    from gnnbench.datasets import _graph_files

    path = _locate(config.path, where, folders=True)
    if path.is_dir() or _suffix(path) == MANY:
        _check_unused(config, ("features", "labels", "split"), f"{path} holds many, with their own")
        return _graph_files.read(path, config.classes)
    if config.task == "links" and _link_files.is_links(path):
        _check_unused(config, ("labels", "split"), f"{path} lists links, with their parts")
        return _links(path, config, where)
    return _one_graph(path, config, where)


def _check_unused(config: Config, keys: Sequence[str], why: str) -> None:
    if given := [key for key in keys if getattr(config, key) is not None]:
        raise DatasetError(f"dataset.{given[0]}: is for a file of one graph; {why}")


def _links(path: Path, config: Config, where: Roots) -> LinksDataset:
    parts = _read(path, _link_files.read)
    arrays = {"edge_index": parts.pop("pairs").numpy()} | _beside(config, where)
    x = _features(config.features or path, arrays.get("x"), _num_nodes(path, arrays))
    return LinksDataset(_plain_name(path), x=x, **parts)


def _one_graph(path: Path, config: Config, where: Roots) -> NodeDataset:
    import torch

    from gnnbench.datasets import _prepare, _tables

    arrays = _read(path, _reader(path))
    if "x" in arrays and arrays["x"].ndim:  # beside its own features, an edge beyond them is out of range
        arrays.setdefault("num_nodes", len(arrays["x"]))
    arrays |= _beside(config, where)
    if config.labels is not None:
        arrays["y"] = _read(_locate(config.labels, where), _tables.read_matrix)
    if config.split is not None:
        arrays |= _read(_locate(config.split, where), _tables.read_split)
    nodes = _num_nodes(path, arrays)
    y = _labels(config.labels or path, arrays["y"]) if "y" in arrays else torch.full((nodes,), -1)
    masks: dict[str, Any] = {part: _mask(config.split or path, arrays.get(part), nodes) for part in _prepare.PARTS}
    if config.split is not None and not bool(masks["train_mask"].any()):
        raise DatasetError(f"{config.split}: the training split is empty; name some nodes 'train'")
    return NodeDataset(
        _plain_name(path),
        torch.from_numpy(arrays["edge_index"]),
        _features(config.features or path, arrays.get("x"), nodes),
        y,
        **masks,
        num_classes=config.classes or _num_classes(config.labels or path, y),
        **_prepare.plain_metric(y.dim() == 2),
        notes=[f"the weights in {path.name} are not used"] if arrays.get("weighted") else [],
    )


def _beside(config: Config, where: Roots) -> dict[str, Any]:
    """Features, where a file of them is given."""
    from gnnbench.datasets import _tables

    if config.features is None:
        return {}
    return {"x": _read(_locate(config.features, where), _tables.read_matrix)}


def _suffix(path: Path) -> str:
    """The suffix below a `.gz`, in lower case."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def _plain_name(path: Path) -> str:
    return path.name[: path.name.lower().rindex(_suffix(path))]


def _locate(path: Path, where: Roots, folders: bool = False) -> Path:
    for candidate in (path.expanduser(), where.raw / path):
        if candidate.is_file() or (candidate.is_dir() and folders):
            return candidate
    raise DatasetError(f"{path}: there is no such file, neither here nor in {where.raw}; check the path")


def _reader(path: Path) -> Callable[[Path], dict[str, np.ndarray]]:
    from gnnbench.datasets import _tables

    suffix = _suffix(path)
    if suffix not in SUFFIXES:
        raise DatasetError(
            f"{path}: is not a kind of graph file known here; allowed: {', '.join((*SUFFIXES, MANY))}"
        )
    return {".mtx": _tables.read_mtx, ".npz": _tables.read_npz}.get(suffix, _tables.read_edge_list)


def _read(path: Path, reader: Callable[[Path], Any]) -> Any:
    from gnnbench.datasets import _raw

    with _raw.reading(path.name, [path]), _raw.quiet():
        return reader(path)


def _num_nodes(path: Path, arrays: dict[str, Any]) -> int:
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


def _labels(path: Path, values: np.ndarray) -> Tensor:
    import torch

    y = torch.from_numpy(values.astype("float64"))
    if y.dim() == 2 and y.size(1) == 1:
        y = y.squeeze(1)
    if y.dim() == 2:
        return y.float()
    if y.dim() != 1:
        raise DatasetError(f"{path}: labels have shape {list(y.shape)}, but must be [N] or [N, T]")
    if not bool((y == y.round()).all()):
        raise DatasetError(f"{path}: labels must be whole numbers, as they are classes")
    return y.long()


def _num_classes(path: Path, y: Tensor) -> int:
    if y.dim() == 2:
        return y.size(1)
    classes = int(y.max()) + 1 if y.numel() else 0
    if classes > max(len(y), 2):
        raise DatasetError(f"{path}: label {classes - 1} among {len(y)} nodes; number the classes from 0")
    return classes


def _mask(path: Path, values: np.ndarray | None, nodes: int) -> Tensor:
    """[N] bool from such a mask or from node ids."""
    import torch

    from gnnbench.datasets import _prepare

    if values is None:
        return torch.zeros(nodes, dtype=torch.bool)
    if values.dtype == bool:
        if values.shape != (nodes,):
            raise DatasetError(f"{path}: a part has shape {list(values.shape)}, but the graph has {nodes} nodes")
        return torch.from_numpy(values)
    if values.dtype.kind not in "iu" or values.ndim != 1:
        raise DatasetError(f"{path}: a part must be a mask or a list of node ids")
    if values.size and (values.min() < 0 or values.max() >= nodes):
        raise DatasetError(f"{path}: names node {values.max()}, but the graph has {nodes} nodes")
    return _prepare.mask_of(nodes, torch.from_numpy(values.astype("int64")))
