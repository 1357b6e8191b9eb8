"""Any node-classification dataset of `torch_geometric.datasets`, of one type or several, by class name.

Classes of PyG are run unchanged, but read a root that may be read-only and process to the cache.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, field_validator

from gnnbench.config import Count, DatasetConfig
from gnnbench.datasets import GraphsDataset, NodeDataset, Roots, TypedDataset, _disk
from gnnbench.datasets._disk import Place
from gnnbench.datasets._kinds import MASKS, SPLITS
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
OURS = {"root", "transform", "pre_transform", "pre_filter", "force_reload"}


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
        """The object with `more` arguments and with `members` replaced, see `_disk.construct`."""
        where = {"root": str(root)} if self.has_root else {}
        return _disk.construct(dataset_class(self.dataset_class), members, **where, **self.args, **more)

    def place(self, root: Path) -> list[Place]:
        """The raw files below one root; an empty list for a class that needs none."""
        with _disk.quiet():
            dataset = self.construct(root, _download=_disk.stop, _process=_disk.stop)
        if not dataset.has_download:
            return []
        try:
            files = [Path(path) for path in dataset.raw_paths]
        except NotImplementedError:
            files = []
        return [Place(Path(dataset.raw_dir), files)]

    def places(self, where: Roots, *, there: bool = False) -> Iterator[Place]:
        """Folders to look into, best first: of the class, or given as PyG's `root`; all, or those there."""
        own, raw = self.own_folder, where.raw
        roots = dict.fromkeys([raw / own, raw / self.dataset_class, raw, where.cache / "data" / own])
        return (place for root in roots if root.is_dir() or not there for place in self.place(root))

    def folder(self, name: str, where: Roots) -> Path | None:
        """Where all its raw files are, if they are on disk. PyG, which takes seconds to import, is asked last."""
        return next((place.folder for place in self.places(where, there=True) if not place.missing), None)


KNOWN = {
    "amazon-computers": Known("Amazon", {"name": "Computers"}, 13_752, 491_722),
    "amazon-photo": Known("Amazon", {"name": "Photo"}, 7_650, 238_162),
    "amazon-ratings": Known("HeterophilousGraphDataset", {"name": "Amazon-ratings"}, 24_492, 186_100),
    "blogcatalog": Known("AttributedGraphDataset", {"name": "BlogCatalog"}, 5_196, 343_486),
    "coauthor-cs": Known("Coauthor", {"name": "CS"}, 18_333, 163_788),
    "coauthor-physics": Known("Coauthor", {"name": "Physics"}, 34_493, 495_924),
    "dblp": Known("DBLP", {}, 26_128, 239_566, keys={"embedding": 64}),  # whose conferences have no features
    "flickr": Known("Flickr", {}, 89_250, 899_756),
    "imdb": Known("IMDB", {}, 11_616, 34_212),
    "johnshopkins55": Known("LINKXDataset", {"name": "johnshopkins55"}, 5_180, 373_172),
    "minesweeper": Known("HeterophilousGraphDataset", {"name": "Minesweeper"}, 10_000, 78_804),
    "questions": Known("HeterophilousGraphDataset", {"name": "Questions"}, 48_921, 307_080),
    "roman-empire": Known("HeterophilousGraphDataset", {"name": "Roman-empire"}, 22_662, 65_854),
    "soc-epinions1": Known("SNAPDataset", {"name": "soc-epinions1"}, 75_888, 508_837),
    "tolokers": Known("HeterophilousGraphDataset", {"name": "Tolokers"}, 11_758, 1_038_000),
    "wiki-vote": Known("SNAPDataset", {"name": "wiki-vote"}, 7_115, 103_689),
    "wikics": Known("WikiCS", {}, 11_701, 431_726),
    "yelp": Known("Yelp", {}, 716_847, 13_954_819),
}


class Config(DatasetConfig):
    """A class, its arguments and, where it has several splits, which."""

    source: str = "pyg"
    dataset_class: str = Field(description="a class of torch_geometric.datasets, such as Amazon")
    args: dict[str, Any] = Field({}, description="what its constructor takes beside root, such as name")
    split_index: Count = Field(0, description="which split where there are several")

    @field_validator("args")
    @classmethod
    def _not_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        if ours := OURS & value.keys():
            raise ValueError(f"{min(ours)!r} cannot be given; use --data-root and the keys of this section")
        return value


def parse(spec: str) -> dict[str, Any] | None:
    """A short name in any case, or `ClassName[:argument]`, such as `Amazon:Photo`."""
    if item := KNOWN.get(spec.lower()):
        return {"dataset_class": item.dataset_class, "args": item.args, **item.keys}
    match = re.fullmatch(r"([A-Z]\w*)(?::([^:/]+))?", spec)
    if not match:
        return None
    import torch_geometric.datasets as datasets

    name, argument = match.groups()
    if name not in datasets.__all__ or name == "TUDataset":  # which is a source of its own
        return None
    keys = [key for key in inspect.signature(getattr(datasets, name)).parameters if key not in OURS]
    args = {keys[0]: argument} if argument is not None and keys else {}
    return {"dataset_class": name, "args": args}


def load(config: Config, where: Roots) -> NodeDataset | TypedDataset:
    """Raises DatasetError: unknown class or arguments, raw files missing or corrupt, not one graph."""
    argument = "".join(f":{value}" for value in config.args.values())
    name, asked = config.dataset_class + argument, Known(config.dataset_class, config.args)
    options = {"split_index": config.split_index, "seed": config.seed}
    dataset = read(name, asked, where, "synthetic:cora", **options)
    known = next((item for item in KNOWN.values() if item[:2] == asked[:2]), None)
    if known and (difference := unlike(dataset, known)):
        dataset.notes.append(f"{dataset.name} {difference}; its files may be altered or truncated")
    return dataset


def read(
    name: str, asked: Known, where: Roots, stand_in: str, *, split_index: int = 0, seed: int = 0
) -> NodeDataset | TypedDataset:
    """The only graph of `torch_geometric.datasets.<class>(root, **args)`.

    Args:
        name: what tables call it.
        stand_in: the synthetic dataset that messages propose instead.
        split_index: which of several splits to use.
        seed: for a class that draws its graph, which is then called synthetic.
    """
    (dataset,) = opened(name, asked, where, stand_in, seed=seed)
    read_from = Path(dataset.raw_dir) if dataset.has_download else where.cache
    with _disk.reading(name, [read_from]), _disk.quiet():
        converted = _convert(name, asked.dataset_class, dataset, split_index)
    if not dataset.has_download and asked.dataset_class != "KarateClub":
        converted.name = f"synthetic {name}"
        converted.synthetic_parts = ["graph", "features", "labels", "split"]
    return converted


def opened(
    name: str, asked: Known, where: Roots, stand_in: str, *, splits: Sequence[str] = (), seed: int = 0
) -> list[Any]:
    """Objects of `torch_geometric.datasets.<class>(root, **args)`, processed once into the cache.

    Args:
        splits: names for `split`, of which there is an object each; none for a single object without.
    """
    import torch_geometric

    variants: list[dict[str, Any]] = [{"split": split} for split in splits] or [{}]
    place = _find(name, asked, where, stand_in)
    raw = {"raw_dir": property(lambda self: str(place.folder))} if place else {}
    # All that is there, as some classes read more than they name.
    files = sorted({*place.files, *filter(Path.is_file, place.folder.rglob("*"))}) if place else []
    key = _disk.fingerprint(
        files,
        asked.dataset_class,
        "" if place else str(seed),
        json.dumps(dict(asked.args), sort_keys=True, default=str),
        torch_geometric.__version__,
    )

    def construct(processed: Path, variant: dict[str, Any] = variants[0]) -> Any:
        with _disk.seeded(seed):
            return asked.construct(
                where.cache, variant, processed_dir=property(lambda self: str(processed)), **raw
            )

    with _disk.reading(name, files or [where.cache]), _disk.quiet():
        folder = _disk.built(where.cache / "pyg" / f"{asked.dataset_class}-{key}", construct)
        return [construct(folder, variant) for variant in variants]


def joined(known: Known, where: Roots, stand_in: str, **options: Any) -> GraphsDataset:
    """The graphs of a class with `split="train"`, "val" and "test"; `options` as of `from_pyg`."""
    from gnnbench.datasets import _prepare_graphs

    name = known.args["name"]
    datasets = opened(name, known, where, stand_in, splits=SPLITS)
    return _prepare_graphs.from_pyg(name, dict(zip(SPLITS, datasets, strict=True)), **options)


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


def unlike(dataset: Any, known: Known) -> str:
    """Half a sentence on counts that are not the published ones (text cut short still loads); else empty."""
    nouns = ["graphs"] * (known.graphs > 1) + ["nodes", "edges"]
    found = [getattr(dataset, f"num_{noun}") for noun in nouns]
    published = [getattr(known, noun) for noun in nouns]
    if found == published:
        return ""
    counts = ", ".join(f"{{:,}} {noun}" for noun in nouns)
    return f"has {counts.format(*found)} instead of the published {counts.format(*published)}"


def _find(name: str, asked: Known, where: Roots, stand_in: str) -> Place | None:
    """Where the raw files are, downloaded if necessary; None for a class that generates its graph."""
    if not asked.has_root:
        return None
    try:
        places = [*asked.places(where)]
        target = asked.place(_disk.writable_root(where.raw, where.cache) / asked.own_folder)
    except Exception as error:
        said = str(error).strip().splitlines() or ["see its documentation for those it knows"]
        given = ", ".join(f"{key}={value!r}" for key, value in asked.args.items())
        raise DatasetError(f"{asked.dataset_class} of PyG refuses the arguments ({given}): {said[0]}") from error

    def download(temporary: Path) -> Path:
        return Path(asked.construct(temporary, _process=_disk.stop).raw_dir)

    return _disk.found(name, places, target[0], stand_in, download) if places else None


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
    masks: dict[str, Any] = {name: data.get(name, torch.zeros(nodes)) for name in MASKS}
    for split, mask in masks.items():
        if mask.dim() == 2 and split_index >= mask.size(1):
            raise DatasetError(f"{name} has {mask.size(1)} splits; split_index {split_index} is not below that")
        masks[split] = (mask[:, split_index] if mask.dim() == 2 else mask).bool()
    classes = y.size(1) if y.dim() == 2 else int(y.max()) + 1
    return NodeDataset(name, data.edge_index.long(), x, y, **masks, num_classes=classes)
