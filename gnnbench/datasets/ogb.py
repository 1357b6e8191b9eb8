"""OGB's node-property datasets through ogb's own loader and split (Hu et al. 2020); its loaders, unattended."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from unittest import mock

from gnnbench.config import DatasetConfig
from gnnbench.datasets import NodeDataset, Roots, TypedDataset, _disk, one_of
from gnnbench.datasets._kinds import SPLITS
from gnnbench.errors import DatasetError

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
        return next((place.folder for place in _places(name, where) if not place.missing), None)


# Nodes and edges as ogb's loader gives them (products and proteins in both directions, arxiv in one).
KNOWN = {
    "ogbn-arxiv": Known(169_343, 1_166_243),
    "ogbn-products": Known(2_449_029, 123_718_280),
    "ogbn-proteins": Known(132_534, 79_122_504),
    # Only its papers have features, as wide as the vectors that the others get.
    "ogbn-mag": Known(1_939_743, 21_111_007, keys={"to_undirected": True, "embedding": 128}),
    "ogbn-papers100M": Known(111_059_956, 1_615_685_872),
}
STAND_INS = {"ogbn-products": "ogbn-products", "ogbn-proteins": "ogbn-proteins", "ogbn-mag": "mag:0.01"}


class Config(DatasetConfig):
    """Which dataset."""

    source: str = "ogb"
    name: Annotated[str, one_of("dataset", KNOWN)]


def load(config: Config, where: Roots) -> NodeDataset | TypedDataset:
    """The only graph of `ogb.nodeproppred.PygNodePropPredDataset(config.name)`.

    ogbn-proteins has features on its edges alone: those of a node are the sum over its in-edges.
    """
    import torch
    from torch_geometric.data import HeteroData

    from gnnbench.datasets import _prepare

    graphs, splits = loaded(config.name, where, f"synthetic:{STAND_INS.get(config.name, 'ogbn-arxiv')}")
    data, facts = graphs[0], meta(config.name)
    if facts["is hetero"] == "True":
        types = HeteroData()
        for kind, nodes in data.num_nodes_dict.items():
            types[kind].num_nodes = nodes
        for key in ("x", "y", "edge_index"):
            for kind, value in data[f"{key}_dict"].items():
                types[kind][key] = value
        typed = _prepare.typed(config.name, types)
        typed.num_classes = int(facts["num classes"])
        for split, ids in splits.items():
            setattr(typed, f"{split}_mask", _prepare.mask_of(len(typed.y), ids[typed.target]))
        return typed

    x = data.x
    if x is None and data.edge_attr is not None:
        x = torch.zeros(data.num_nodes, data.edge_attr.size(1))
        x.index_add_(0, data.edge_index[1], data.edge_attr.float())
    elif x is None:
        if not config.random_features:
            raise DatasetError(
                f"{config.name}: {Path(graphs.raw_dir) / 'node-feat.csv.gz'} is missing; put it there, or fill in "
                f"seeded random features, marked synthetic, with --set dataset.random_features=128"
            )
        x = torch.empty(data.num_nodes, 0)
    y = _prepare.targets(config.name, data.y.nan_to_num(-1) if data.y.size(1) == 1 else data.y)
    masks: dict[str, Any] = {f"{split}_mask": _prepare.mask_of(len(x), ids) for split, ids in splits.items()}
    return NodeDataset(
        config.name,
        data.edge_index,
        x.float(),
        y,
        **masks,
        num_classes=y.size(1) if y.dim() == 2 else int(facts["num classes"]),
        metric=facts["metric"],
    )


def meta(name: str) -> dict[str, str]:
    """OGB's own description of a dataset, `metric` in our words; all values are text."""
    import pandas as pd

    with _disk.quiet():
        package = importlib.import_module(_package(name))
    table = pd.read_csv(Path(str(package.__file__)).parent / "master.csv", index_col=0, keep_default_na=False)
    facts = {str(key): str(value) for key, value in table[name].items()}
    return facts | {"metric": OUR_METRICS.get(facts["eval metric"], facts["eval metric"])}


def is_molecular(name: str) -> bool:
    """Return whether features are OGB's categories of atoms and bonds."""
    return name.startswith("ogbg-mol")


def loaded(name: str, where: Roots, stand_in: str) -> tuple[Any, dict[str, Any]]:
    """The dataset, downloaded if necessary and processed into the cache by ogb, and its splits."""
    import ogb
    import torch
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    def download(temporary: Path) -> Path:
        with _unattended(name):
            return Path(_dataset(name, temporary, _process=_disk.stop).root)

    target = _place(name, _disk.writable_root(where.raw, where.cache) / "ogb" / name.replace("-", "_"))
    folder = _disk.found(name, _places(name, where), target, stand_in, download).folder
    files = sorted(path for below in ("raw", "split") for path in (folder / below).rglob("*") if path.is_file())
    key = _disk.fingerprint(files, ogb.__version__)

    def construct(processed: Path) -> Any:
        # Raw files that are missing must not start a download here: `found` has decided that.
        members = {"processed_dir": property(lambda self: str(processed)), "_download": lambda self: None}
        return _dataset(name, folder.parent, **members)

    # ogb saves `Data` objects whole, of which PyG lists but the outermost class as safe.
    allowed = torch.serialization.safe_globals([DataEdgeAttr, DataTensorAttr, GlobalStorage])
    with _disk.reading(name, files), _disk.quiet(), _unattended(name), allowed:
        dataset = construct(_disk.built(where.cache / "ogb" / f"{name}-{key}", construct))
        splits = dataset.get_edge_split() if name.startswith("ogbl") else dataset.get_idx_split()
        return dataset, dict(zip(SPLITS, (splits[split] for split in ("train", "valid", "test")), strict=True))


def _places(name: str, where: Roots) -> list[_disk.Place]:
    """Where the dataset is looked for, best first; ogb itself prefers a folder with the suffix `_pyg`."""
    roots = (where.raw / "ogb", where.raw, where.cache / "data" / "ogb")
    own = name.replace("-", "_")
    folders = [root / f"{own}{suffix}" for root in roots for suffix in ("_pyg", "")]
    return [_place(name, folder) for folder in folders if folder.is_dir() or not folder.name.endswith("_pyg")]


def _place(name: str, folder: Path) -> _disk.Place:
    """Files without which nothing can be loaded; splits are checked when read, as they come in two forms."""
    others = {
        "ogbn-papers100M": ("data.npz", "node-label.npz"),
        "ogbn-mag": ("num-node-dict.csv.gz", "triplet-type-list.csv.gz"),
        "ogbl-vessel": ("data.npz",),
    }
    edges = ("edge.csv.gz", "num-node-list.csv.gz", "num-edge-list.csv.gz")
    labels = {"ogbn": ("node-label.csv.gz",), "ogbg": ("graph-label.csv.gz",), "ogbl": ()}[name[:4]]
    atoms = ("node-feat.csv.gz", "edge-feat.csv.gz") if is_molecular(name) else ()
    needed = others.get(name, (*edges, *labels, *atoms))
    return _disk.Place(folder, [*(folder / "raw" / file for file in needed), folder / "split"])


def _package(name: str) -> str:
    return f"ogb.{LOADERS[name[:4]][0]}"


def _dataset(name: str, root: Path, **members: Any) -> Any:
    loader = getattr(importlib.import_module(_package(name)), LOADERS[name[:4]][1])
    return _disk.construct(loader, members, name=name, root=str(root))


@contextlib.contextmanager
def _unattended(name: str) -> Iterator[None]:
    """Answer ogb's questions: yes to the size of a download, no to replacing files by a newer release."""
    module = importlib.import_module(f"{_package(name)}.dataset_pyg")
    answers: dict[str, Any] = {"decide_download": lambda url: True, "input": lambda question: "n"}
    with mock.patch.multiple(module, create=True, **answers):
        yield
