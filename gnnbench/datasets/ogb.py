"""OGB's node-property datasets through ogb's own loader and Evaluator (Hu et al. 2020)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import field_validator

from gnnbench.config import DatasetConfig
from gnnbench.datasets import NodeDataset, Offer, Roots, _cache, _prepare, _raw
from gnnbench.errors import DatasetError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

# Nodes and edges as ogb's loader gives them (products and proteins in both directions, arxiv in one).
KNOWN = {
    "ogbn-arxiv": (169_343, 1_166_243),
    "ogbn-products": (2_449_029, 123_718_280),
    "ogbn-proteins": (132_534, 79_122_504),
    "ogbn-mag": (1_939_743, 21_111_007),
    "ogbn-papers100M": (111_059_956, 1_615_685_872),
}
SPECS = list(KNOWN)
NEEDED = {
    True: ("raw/data.npz", "raw/node-label.npz"),
    False: (
        "raw/edge.csv.gz",
        "raw/num-node-list.csv.gz",
        "raw/num-edge-list.csv.gz",
        "raw/node-label.csv.gz",
    ),
}


class Config(DatasetConfig):
    """Which dataset."""

    source: str = "ogb"
    name: str

    @field_validator("name")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in KNOWN:
            raise ValueError(f"unknown dataset {value!r}{did_you_mean(value, KNOWN)}")
        return value


def parse(spec: str) -> dict[str, Any] | None:
    """`ogbn-arxiv` and the like, in any case and with `_` for `-`."""
    names = {name.lower(): name for name in KNOWN}
    name = names.get(spec.lower().replace("_", "-"))
    return {"name": name} if name else None


def listing(where: Roots) -> list[Offer]:
    """On disk even where only the node features are missing, as those can be filled in."""
    offers = []
    for name, (nodes, edges) in KNOWN.items():
        on_disk = (folder for folder in _folders(name, where) if not _missing(name, folder))
        offers.append(Offer(name, nodes, edges, next(on_disk, None)))
    return offers


def load(config: Config, where: Roots) -> NodeDataset:
    """The only graph of `ogb.nodeproppred.PygNodePropPredDataset(config.name)`.

    ogbn-proteins has features on its edges alone: those of a node are the sum over its in-edges.

    Raises:
        DatasetError: files missing or corrupt, node features missing and not asked to be filled in, or a
            graph of several node types.
    """
    import torch

    meta = _meta(config.name)
    if meta["is hetero"] == "True":
        raise DatasetError(
            f"{config.name} has several node and edge types; gnnbench trains on graphs of one type, "
            f"such as ogbn-arxiv"
        )
    folder = _find(config.name, where)
    data, split = _read(config.name, folder, where)

    x = data.x
    if x is None and data.edge_attr is not None:
        x = torch.zeros(data.num_nodes, data.edge_attr.size(1))
        x.index_add_(0, data.edge_index[1], data.edge_attr.float())
    elif x is None:
        if not config.random_features:
            raise DatasetError(
                f"{config.name}: {folder / 'raw' / 'node-feat.csv.gz'} is missing; put it there, or fill in "
                f"seeded random features, marked synthetic, with --set dataset.random_features=128"
            )
        x = torch.empty(data.num_nodes, 0)
    y = data.y.squeeze(1) if data.y.size(1) == 1 else data.y.float()
    if y.dim() == 1:
        y = y.nan_to_num(-1).long()
    parts = zip(_prepare.PARTS, ("train", "valid", "test"), strict=True)
    masks: dict[str, Any] = {part: _prepare.mask_of(data.num_nodes, split[key]) for part, key in parts}
    metric, score = _evaluator(config.name)
    return NodeDataset(
        config.name,
        data.edge_index,
        x.float(),
        y,
        **masks,
        num_classes=y.size(1) if y.dim() == 2 else int(meta["num classes"]),
        metric=metric,
        score=score,
    )


def _meta(name: str) -> dict[str, str]:
    """OGB's own description of a dataset; all values are text."""
    import pandas as pd

    with _raw.quiet():
        import ogb.nodeproppred
    table = pd.read_csv(Path(ogb.nodeproppred.__file__).parent / "master.csv", index_col=0, keep_default_na=False)
    return {str(key): str(value) for key, value in table[name].items()}


def _folders(name: str, where: Roots) -> list[Path]:
    """Where the dataset is looked for, best first; ogb itself prefers a folder with the suffix `_pyg`."""
    own = name.replace("-", "_")
    roots = (where.raw / "ogb", where.raw, where.cache / "data" / "ogb")
    return [root / f"{own}{suffix}" for root in roots for suffix in ("_pyg", "")]


def _missing(name: str, folder: Path) -> list[str]:
    """Files without which nothing can be loaded; splits are checked when read, as they come in two forms."""
    needed = NEEDED[name == "ogbn-papers100M"]
    return [file for file in (*needed, "split") if not (folder / file).exists()]


def _find(name: str, where: Roots) -> Path:
    folders = _folders(name, where)
    for folder in folders:
        if not _missing(name, folder):
            return folder
    nearest = min(folders, key=lambda folder: (len(_missing(name, folder)), folder.name.endswith("_pyg")))
    target = _raw.writable_root(where.raw, where.cache) / "ogb" / name.replace("-", "_")

    def download(temporary: Path) -> Path:
        with _unattended():
            fetched = _dataset(name, temporary, _process=_raw.stop)
        return Path(fetched.root)

    twin = name if name in ("ogbn-products", "ogbn-proteins") else "ogbn-arxiv"
    missing = f"no {', '.join(_missing(name, nearest))} in {nearest}"
    _raw.fetch(name, target, missing, f"synthetic:{twin}", download)
    return target


def _read(name: str, folder: Path, where: Roots) -> tuple[Any, dict[str, Tensor]]:
    """The graph, processed into the cache by ogb, and the split."""
    import ogb

    files = sorted(path for part in ("raw", "split") for path in (folder / part).rglob("*") if path.is_file())
    key = _cache.fingerprint(files, ogb.__version__)

    def construct(processed: Path) -> Any:
        # Raw files that are missing must not start a download here: `_find` has decided that.
        members = {"processed_dir": property(lambda self: str(processed)), "_download": lambda self: None}
        return _dataset(name, folder.parent, **members)

    with _raw.reading(name, files), _raw.quiet(), _unattended(), _trusting(where.cache / "ogb", folder):
        dataset = construct(_cache.built(where.cache / "ogb" / f"{name}-{key}", construct))
        return dataset[0], dataset.get_idx_split()


def _dataset(name: str, root: Path, **members: Any) -> Any:
    from ogb.nodeproppred import PygNodePropPredDataset

    return _raw.construct(PygNodePropPredDataset, members, name=name, root=str(root))


def _evaluator(name: str) -> tuple[str, Callable[[Tensor, Tensor], float]]:
    """Name and function of the metric that OGB prescribes for `name`."""
    from ogb.nodeproppred import Evaluator

    evaluator = Evaluator(name)

    def accuracy(logits: Tensor, y: Tensor) -> float:
        answer = {"y_true": y.unsqueeze(1), "y_pred": logits.argmax(-1, keepdim=True)}
        return float(evaluator.eval(answer)["acc"])

    def rocauc(logits: Tensor, y: Tensor) -> float:
        if not bool(((y == 1).any(0) & (y == 0).any(0)).any()):
            return float("nan")  # no label has both values, so there is no curve
        return float(evaluator.eval({"y_true": y, "y_pred": logits})["rocauc"])

    return ("rocauc", rocauc) if evaluator.eval_metric == "rocauc" else ("accuracy", accuracy)


@contextlib.contextmanager
def _unattended() -> Iterator[None]:
    """Answer ogb's questions: yes to the size of a download, no to replacing files by a newer release."""
    from ogb.nodeproppred import dataset_pyg

    with (
        _replaced(dataset_pyg, "decide_download", lambda url: True),
        _replaced(dataset_pyg, "input", lambda question: "n"),
    ):
        yield


@contextlib.contextmanager
def _trusting(*folders: Path) -> Iterator[None]:
    """Let ogb's `torch.load` unpickle the files in `folders`, and no others.

    OGB saves whole PyG `Data` objects and calls `torch.load` without `weights_only`, which torch 2.6 turned to
    True. What it loads was either processed on this machine into our cache or is the split of the dataset's
    own archive, which the user chose to trust as ogb's users always do.
    """
    import torch

    load = torch.load
    trusted = [folder.resolve() for folder in folders]

    def load_trusted(file: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, (str, Path)) and any(root in Path(file).resolve().parents for root in trusted):
            kwargs["weights_only"] = False
        return load(file, *args, **kwargs)

    with _replaced(torch, "load", load_trusted):
        yield


@contextlib.contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    """Set a name of a module for a while; it may not have existed before."""
    missing = object()
    before = getattr(module, name, missing)
    setattr(module, name, value)
    try:
        yield
    finally:
        if before is missing:
            delattr(module, name)
        else:
            setattr(module, name, before)
