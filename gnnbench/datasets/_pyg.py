"""Dataset classes of PyG, run unchanged, but reading a root that may be read-only and processing to the cache."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gnnbench.datasets import GraphsDataset, NodeDataset, Roots, TypedDataset, _cache, _raw
from gnnbench.datasets._nodes import MASKS, PARTS
from gnnbench.errors import DatasetError, did_you_mean

# Folders that several classes share in common collections; otherwise a folder is called like its class.
FOLDERS = {
    "HeterophilousGraphDataset": "Heterophilous",
    "AttributedGraphDataset": "AttributedGraph",
    "LINKXDataset": "LINKX",
    "SNAPDataset": "SNAP",
}
# Classes whose code evaluates text of their files, or unpickles past Python's own unpickler.
UNSAFE = ("CornellTemporalHyperGraphDataset", "GitMolDataset")


class Known(NamedTuple):
    """A dataset with a short name: its published counts over all graphs (both directions of an edge), and keys."""

    dataset_class: str
    args: dict[str, Any]
    nodes: int | None
    edges: int | None
    graphs: int = 1
    keys: Mapping[str, Any] = {}

    def folder(self, name: str, where: Roots) -> Path | None:
        """Where all its raw files are, if they are on disk."""
        places = _places(dataset_class(self.dataset_class), self.args, where)
        return next((place.folder for place in places if not place.missing), None)


class Place(NamedTuple):
    """Where the raw files of a dataset are expected."""

    folder: Path
    files: list[Path]  # empty where the class does not say

    @property
    def missing(self) -> list[Path]:
        if self.files:
            return [file for file in self.files if not file.exists()]
        return [] if self.folder.is_dir() and any(self.folder.iterdir()) else [self.folder]

    @property
    def present(self) -> list[Path]:
        """All files there, as some classes read more than they name."""
        if self.files:
            return sorted({*self.files, *filter(Path.is_file, self.folder.iterdir())})
        return sorted(self.folder.rglob("*"))


def load(
    name: str,
    class_name: str,
    args: Mapping[str, Any],
    where: Roots,
    *,
    stand_in: str,
    split_index: int = 0,
    seed: int = 0,
) -> NodeDataset | TypedDataset:
    """The only graph of `torch_geometric.datasets.<class_name>(root, **args)`.

    Args:
        name: what tables call it.
        stand_in: the synthetic dataset that messages propose instead.
        split_index: which of several splits to use.
        seed: for a class that draws its graph, which is then called synthetic.

    Raises:
        DatasetError: unknown class, refused arguments, raw files missing or corrupt, not one node-level graph.
    """
    (dataset,) = opened(name, class_name, args, where, stand_in=stand_in, seed=seed)
    read_from = Path(dataset.raw_dir) if dataset.has_download else where.cache
    with _raw.reading(name, [read_from]), _raw.quiet():
        converted = _convert(name, class_name, dataset, split_index)
    if not dataset.has_download and class_name != "KarateClub":
        converted.name = f"synthetic {name}"
        converted.made_up = ["graph", "features", "labels", "split"]
    return converted


def opened(
    name: str,
    class_name: str,
    args: Mapping[str, Any],
    where: Roots,
    *,
    stand_in: str,
    variants: Sequence[Mapping[str, Any]] = ({},),
    seed: int = 0,
) -> list[Any]:
    """Objects of `torch_geometric.datasets.<class_name>(root, **args, **variant)`, processed once into the cache.

    Args:
        variants: arguments that choose among files which are processed together, such as `{"split": "val"}`.

    Raises:
        DatasetError: unknown class, refused arguments, raw files missing or corrupt.
    """
    import torch_geometric

    cls = dataset_class(class_name)
    place = _find(name, cls, args, where, stand_in)
    raw = {"raw_dir": property(lambda self: str(place.folder))} if place else {}
    files = place.present if place else []
    words = (
        class_name,
        "" if place else str(seed),
        json.dumps(dict(args), sort_keys=True, default=str),
        torch_geometric.__version__,
    )
    key = _cache.fingerprint(files, *words)

    def construct(processed: Path, variant: Mapping[str, Any] = variants[0]) -> Any:
        members = {"processed_dir": property(lambda self: str(processed)), **raw}
        with _raw.seeded(seed):
            return _construct(cls, {**args, **variant}, where.cache, **members)

    with _raw.reading(name, files or [where.cache]), _raw.quiet():
        folder = _cache.built(where.cache / "pyg" / f"{class_name}-{key}", construct)
        return [construct(folder, variant) for variant in variants]


def joined(known: Known, where: Roots, stand_in: str, **options: Any) -> GraphsDataset:
    """The graphs of a class with `split="train"`, "val" and "test", with `options` of `_union.of`."""
    from gnnbench.datasets import _union

    name = known.args["name"]
    variants = [{"split": part} for part in PARTS]
    datasets = opened(name, known.dataset_class, known.args, where, stand_in=stand_in, variants=variants)
    return _union.of(name, dict(zip(PARTS, datasets, strict=True)), **options)


def dataset_class(name: str) -> type:
    """The class of `torch_geometric.datasets` called `name`; DatasetError where there is none."""
    import torch_geometric.datasets as datasets

    if name not in datasets.__all__:
        raise DatasetError(f"dataset_class: PyG has no dataset {name!r}{_near(name, datasets.__all__)}")
    if name in UNSAFE:
        raise DatasetError(f"dataset_class: {name} of PyG runs code from its files; gnnbench does not read it")
    cls: type = getattr(datasets, name)
    return cls


def unlike(dataset: NodeDataset | TypedDataset, known: Known) -> str:
    """Half a sentence on counts that are not the published ones (text cut short still loads); else empty."""
    result, published = (dataset.num_nodes, dataset.num_edges), (known.nodes, known.edges)
    if result == published:
        return ""
    counts = "{:,} nodes and {:,} edges"
    return f"has {counts.format(*result)} instead of the published {counts.format(*published)}"


def _near(name: str, allowed: list[str]) -> str:
    hint = did_you_mean(name, allowed)
    return hint if "did you mean" in hint else "; see torch_geometric.datasets for those it has"


def _find(name: str, cls: type, args: Mapping[str, Any], where: Roots, stand_in: str) -> Place | None:
    """Where the raw files are, downloaded if necessary; None for a class that generates its graph."""
    if not _has_root(cls):
        return None
    try:
        places = _places(cls, args, where)
    except Exception as error:
        said = str(error).strip().splitlines() or ["see its documentation for those it knows"]
        given = ", ".join(f"{key}={value!r}" for key, value in args.items())
        raise DatasetError(f"{cls.__name__} of PyG refuses the arguments ({given}): {said[0]}") from error
    if not places:
        return None
    for place in places:
        if not place.missing:
            return place
    nearest = min(places, key=lambda place: (len(place.missing), not place.folder.is_dir()))
    looked = " and ".join(str(place.folder) for place in places[:2])
    missing = f"no {', '.join(path.name for path in nearest.missing)} in {looked}"
    root = _raw.writable_root(where.raw, where.cache) / _folder(cls)
    (target,) = _place(cls, args, root)

    def download(temporary: Path) -> Path:
        return Path(_construct(cls, args, temporary, _process=_raw.stop).raw_dir)

    _raw.fetch(name, target.folder, missing, stand_in, download)
    (target,) = _place(cls, args, root)
    if target.missing:
        raise DatasetError(f"{name}: the download left out {', '.join(map(str, target.missing))}")
    return target


def _places(cls: type, args: Mapping[str, Any], where: Roots) -> list[Place]:
    """Folders to look into, best first: of the class, or given as PyG's own `root`."""
    roots = dict.fromkeys(
        [where.raw / _folder(cls), where.raw / cls.__name__, where.raw, where.cache / "data" / _folder(cls)]
    )
    return [place for root in roots for place in _place(cls, args, root)]


def _place(cls: type, args: Mapping[str, Any], root: Path) -> list[Place]:
    """The raw files below one root; an empty list for a class that needs none."""
    with _raw.quiet():
        dataset = _construct(cls, args, root, _download=_raw.stop, _process=_raw.stop)
    if not dataset.has_download:
        return []
    try:
        files = [Path(path) for path in dataset.raw_paths]
    except NotImplementedError:
        files = []
    return [Place(Path(dataset.raw_dir), files)]


def _construct(cls: type, args: Mapping[str, Any], root: Path, **members: Any) -> Any:
    root_arg = {"root": str(root)} if _has_root(cls) else {}
    return _raw.construct(cls, members, **root_arg, **args)


def _has_root(cls: type) -> bool:
    return "root" in inspect.signature(cls).parameters


def _folder(cls: type) -> str:
    return FOLDERS.get(cls.__name__, cls.__name__)


def _convert(name: str, class_name: str, dataset: Any, split_index: int) -> NodeDataset | TypedDataset:
    import torch
    from torch_geometric.data import Data, HeteroData

    from gnnbench.datasets import _prepare

    if len(dataset) == 1 and isinstance(dataset[0], HeteroData):
        return _prepare.typed(name, dataset[0])
    if len(dataset) != 1 or not isinstance(dataset[0], Data) or dataset[0].edge_index is None:
        kind = f"{len(dataset)} graphs" if len(dataset) != 1 else "no graph with edges"
        raise DatasetError(f"{name}: {class_name} holds {kind}; gnnbench trains on one graph")
    data = dataset[0]
    nodes = data.num_nodes
    x = torch.empty(nodes, 0) if data.x is None else data.x.to_dense().float()
    y = torch.full((nodes,), -1) if data.y is None else _prepare.targets(name, data.y)
    masks: dict[str, Any] = {part: _mask(name, data.get(part), nodes, split_index) for part in MASKS}
    classes = y.size(1) if y.dim() == 2 else int(y.max()) + 1
    return NodeDataset(name, data.edge_index.long(), x, y, **masks, num_classes=classes)


def _mask(name: str, mask: Any, nodes: int, split_index: int) -> Any:
    import torch

    if mask is None:
        return torch.zeros(nodes, dtype=torch.bool)
    if mask.dim() == 2:
        if split_index >= mask.size(1):
            raise DatasetError(f"{name} has {mask.size(1)} splits; split_index {split_index} is not below that")
        mask = mask[:, split_index]
    return mask.bool()
