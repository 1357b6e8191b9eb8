"""Dataset classes of PyG, run unchanged, but reading a root that may be read-only and processing to the cache."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gnnbench.datasets import GraphsDataset, NodeDataset, Roots, TypedDataset, _cache, _raw
from gnnbench.datasets._kinds import MASKS, PARTS
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


class Known(NamedTuple):
    """A class with its arguments; of a short name the published counts over all graphs, and keys that it sets.

    An undirected edge counts twice.
    """

    dataset_class: str
    args: Mapping[str, Any]
    nodes: int | None = None
    edges: int | None = None
    graphs: int = 1
    keys: Mapping[str, Any] = {}

    @property
    def has_root(self) -> bool:
        """Tell whether the class reads or writes any files."""
        return "root" in inspect.signature(dataset_class(self.dataset_class)).parameters

    @property
    def own_folder(self) -> str:
        return FOLDERS.get(self.dataset_class, self.dataset_class)

    def construct(self, root: Path, more: Mapping[str, Any] = {}, **members: Any) -> Any:
        """The object with `more` arguments and with `members` replaced, see `_raw.construct`."""
        where = {"root": str(root)} if self.has_root else {}
        return _raw.construct(dataset_class(self.dataset_class), members, **where, **self.args, **more)

    def place(self, root: Path) -> list[Place]:
        """The raw files below one root; an empty list for a class that needs none."""
        with _raw.quiet():
            dataset = self.construct(root, _download=_raw.stop, _process=_raw.stop)
        if not dataset.has_download:
            return []
        try:
            files = [Path(path) for path in dataset.raw_paths]
        except NotImplementedError:
            files = []
        return [Place(Path(dataset.raw_dir), files)]

    def places(self, where: Roots) -> list[Place]:
        """Folders to look into, best first: of the class, or given as PyG's own `root`."""
        own, raw = self.own_folder, where.raw
        roots = dict.fromkeys([raw / own, raw / self.dataset_class, raw, where.cache / "data" / own])
        return [place for root in roots for place in self.place(root)]

    def folder(self, name: str, where: Roots) -> Path | None:
        """Where all its raw files are, if they are on disk."""
        return next((place.folder for place in self.places(where) if not place.missing), None)


def load(
    name: str, asked: Known, where: Roots, stand_in: str, *, split_index: int = 0, seed: int = 0
) -> NodeDataset | TypedDataset:
    """The only graph of `torch_geometric.datasets.<class>(root, **args)`.

    Args:
        name: what tables call it.
        stand_in: the synthetic dataset that messages propose instead.
        split_index: which of several splits to use.
        seed: for a class that draws its graph, which is then called synthetic.

    Raises:
        DatasetError: unknown class, refused arguments, raw files missing or corrupt, not one node-level graph.
    """
    (dataset,) = opened(name, asked, where, stand_in, seed=seed)
    read_from = Path(dataset.raw_dir) if dataset.has_download else where.cache
    with _raw.reading(name, [read_from]), _raw.quiet():
        converted = _convert(name, asked.dataset_class, dataset, split_index)
    if not dataset.has_download and asked.dataset_class != "KarateClub":
        converted.name = f"synthetic {name}"
        converted.made_up = ["graph", "features", "labels", "split"]
    return converted


def opened(
    name: str,
    asked: Known,
    where: Roots,
    stand_in: str,
    *,
    variants: Sequence[Mapping[str, Any]] = ({},),
    seed: int = 0,
) -> list[Any]:
    """Objects of `torch_geometric.datasets.<class>(root, **args, **variant)`, processed once into the cache.

    Args:
        variants: arguments that choose among files which are processed together, such as `{"split": "val"}`.

    Raises:
        DatasetError: unknown class, refused arguments, raw files missing or corrupt.
    """
    import torch_geometric

    place = _find(name, asked, where, stand_in)
    raw = {"raw_dir": property(lambda self: str(place.folder))} if place else {}
    files = place.present if place else []
    key = _cache.fingerprint(
        files,
        asked.dataset_class,
        "" if place else str(seed),
        json.dumps(dict(asked.args), sort_keys=True, default=str),
        torch_geometric.__version__,
    )

    def construct(processed: Path, variant: Mapping[str, Any] = variants[0]) -> Any:
        with _raw.seeded(seed):
            return asked.construct(
                where.cache, variant, processed_dir=property(lambda self: str(processed)), **raw
            )

    with _raw.reading(name, files or [where.cache]), _raw.quiet():
        folder = _cache.built(where.cache / "pyg" / f"{asked.dataset_class}-{key}", construct)
        return [construct(folder, variant) for variant in variants]


def joined(known: Known, where: Roots, stand_in: str, **options: Any) -> GraphsDataset:
    """The graphs of a class with `split="train"`, "val" and "test", with `options` of `_union.of`."""
    from gnnbench.datasets import _union

    name = known.args["name"]
    variants = [{"split": part} for part in PARTS]
    datasets = opened(name, known, where, stand_in, variants=variants)
    return _union.of(name, dict(zip(PARTS, datasets, strict=True)), **options)


def dataset_class(name: str) -> type:
    """The class of `torch_geometric.datasets` called `name`; DatasetError where there is none."""
    import torch_geometric.datasets as datasets

    if name not in datasets.__all__:
        hint = did_you_mean(name, datasets.__all__)
        hint = hint if "did you mean" in hint else "; see torch_geometric.datasets for those it has"
        raise DatasetError(f"dataset_class: PyG has no dataset {name!r}{hint}")
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


def _find(name: str, asked: Known, where: Roots, stand_in: str) -> Place | None:
    """Where the raw files are, downloaded if necessary; None for a class that generates its graph."""
    if not asked.has_root:
        return None
    try:
        places = asked.places(where)
    except Exception as error:
        said = str(error).strip().splitlines() or ["see its documentation for those it knows"]
        given = ", ".join(f"{key}={value!r}" for key, value in asked.args.items())
        raise DatasetError(f"{asked.dataset_class} of PyG refuses the arguments ({given}): {said[0]}") from error
    if not places:
        return None
    for place in places:
        if not place.missing:
            return place
    nearest = min(places, key=lambda place: (len(place.missing), not place.folder.is_dir()))
    looked = " and ".join(str(place.folder) for place in places[:2])
    missing = f"no {', '.join(path.name for path in nearest.missing)} in {looked}"
    root = _raw.writable_root(where.raw, where.cache) / asked.own_folder
    (target,) = asked.place(root)

    def download(temporary: Path) -> Path:
        return Path(asked.construct(temporary, _process=_raw.stop).raw_dir)

    _raw.fetch(name, target.folder, missing, stand_in, download)
    (target,) = asked.place(root)
    if target.missing:
        raise DatasetError(f"{name}: the download left out {', '.join(map(str, target.missing))}")
    return target


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
    masks: dict[str, Any] = {part: data.get(part, torch.zeros(nodes)) for part in MASKS}
    for part, mask in masks.items():
        if mask.dim() == 2 and split_index >= mask.size(1):
            raise DatasetError(f"{name} has {mask.size(1)} splits; split_index {split_index} is not below that")
        masks[part] = (mask[:, split_index] if mask.dim() == 2 else mask).bool()
    classes = y.size(1) if y.dim() == 2 else int(y.max()) + 1
    return NodeDataset(name, data.edge_index.long(), x, y, **masks, num_classes=classes)
