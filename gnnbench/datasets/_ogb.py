"""ogb's own loaders, run unattended, and its Evaluators, for datasets of nodes, of graphs and of links."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gnnbench.datasets import _cache, _raw

if TYPE_CHECKING:
    from torch import Tensor

    from gnnbench.datasets import Roots

Task = Literal["nodeproppred", "graphproppred", "linkproppred"]  # packages of ogb
LOADERS: dict[Task, str] = {
    "nodeproppred": "PygNodePropPredDataset",
    "graphproppred": "PygGraphPropPredDataset",
    "linkproppred": "PygLinkPropPredDataset",
}


def meta(task: Task, name: str) -> dict[str, str]:
    """OGB's own description of a dataset; all values are text."""
    import pandas as pd

    with _raw.quiet():
        package = importlib.import_module(f"ogb.{task}")
    table = pd.read_csv(Path(str(package.__file__)).parent / "master.csv", index_col=0, keep_default_na=False)
    return {str(key): str(value) for key, value in table[name].items()}


def folders(name: str, where: Roots) -> list[Path]:
    """Where the dataset is looked for, best first; ogb itself prefers a folder with the suffix `_pyg`."""
    own = name.replace("-", "_")
    roots = (where.raw / "ogb", where.raw, where.cache / "data" / "ogb")
    return [root / f"{own}{suffix}" for root in roots for suffix in ("_pyg", "")]


def on_disk(name: str, where: Roots, needed: Sequence[str]) -> Path | None:
    """The folder with all `needed` files, if there is one."""
    return next((folder for folder in folders(name, where) if not _missing(folder, needed)), None)


def find(task: Task, name: str, where: Roots, needed: Sequence[str], stand_in: str) -> Path:
    """The folder with all `needed` files, downloaded if necessary.

    Raises:
        DatasetError: the download failed; proposes `stand_in`.
    """
    if folder := on_disk(name, where, needed):
        return folder
    known = folders(name, where)
    nearest = min(known, key=lambda folder: (len(_missing(folder, needed)), folder.name.endswith("_pyg")))
    target = _raw.writable_root(where.raw, where.cache) / "ogb" / name.replace("-", "_")

    def download(temporary: Path) -> Path:
        with _unattended(task):
            fetched = _dataset(task, name, temporary, _process=_raw.stop)
        return Path(fetched.root)

    missing = f"no {', '.join(_missing(nearest, needed))} in {nearest}"
    _raw.fetch(name, target, missing, stand_in, download)
    return target


def read(task: Task, name: str, folder: Path, where: Roots) -> tuple[Any, dict[str, Any]]:
    """The dataset, processed into the cache by ogb, and its split into "train", "valid" and "test"."""
    import ogb
    import torch
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    files = sorted(path for part in ("raw", "split") for path in (folder / part).rglob("*") if path.is_file())
    key = _cache.fingerprint(files, ogb.__version__)

    def construct(processed: Path) -> Any:
        # Raw files that are missing must not start a download here: `find` has decided that.
        members = {"processed_dir": property(lambda self: str(processed)), "_download": lambda self: None}
        return _dataset(task, name, folder.parent, **members)

    # ogb saves `Data` objects whole, of which PyG lists but the outermost class as safe.
    parts = torch.serialization.safe_globals([DataEdgeAttr, DataTensorAttr, GlobalStorage])
    with _raw.reading(name, files), _raw.quiet(), _unattended(task), parts:
        dataset = construct(_cache.built(where.cache / "ogb" / f"{name}-{key}", construct))
        return dataset, dataset.get_edge_split() if task == "linkproppred" else dataset.get_idx_split()


def metric_name(task: Task, name: str) -> str:
    """OGB's name of the metric that it prescribes."""
    return meta(task, name)["eval metric"]


def metric_of(task: Task, name: str) -> tuple[str, Callable[[Tensor, Tensor], float]]:
    """Name and function of the metric that OGB prescribes for `name`."""
    with _raw.quiet():
        return _scored(importlib.import_module(f"ogb.{task}").Evaluator(name))


def metric_by_label(metric: Literal["rocauc", "ap"], labels: int) -> tuple[str, Callable[[Tensor, Tensor], float]]:
    """OGB's ROC-AUC or average precision, the mean over `labels` yes-or-no questions, for any dataset."""
    with _raw.quiet():
        evaluator = importlib.import_module("ogb.graphproppred").Evaluator(
            {"rocauc": "ogbg-molhiv", "ap": "ogbg-molpcba"}[metric]
        )
    evaluator.num_tasks = labels
    return _scored(evaluator)


def _scored(evaluator: Any) -> tuple[str, Callable[[Tensor, Tensor], float]]:
    metric = evaluator.eval_metric

    def accuracy(outputs: Tensor, y: Tensor) -> float:
        if not y.numel():
            return float("nan")
        answer = {"y_true": y.unsqueeze(1), "y_pred": outputs.argmax(-1, keepdim=True)}
        return float(evaluator.eval(answer)["acc"])

    def ranking(outputs: Tensor, y: Tensor) -> float:
        if not bool(((y == 1).any(0) & (y == 0).any(0)).any()):
            return float("nan")  # no label has both values, so there is no curve
        return float(evaluator.eval({"y_true": y, "y_pred": outputs})[metric])

    def closeness(outputs: Tensor, y: Tensor) -> float:
        return -float(evaluator.eval({"y_true": y, "y_pred": outputs})["rmse"]) if y.numel() else float("nan")

    if metric == "rmse":
        return "negative RMSE", closeness
    return (metric, ranking) if metric in ("rocauc", "ap") else ("accuracy", accuracy)


def _missing(folder: Path, needed: Sequence[str]) -> list[str]:
    """Files without which nothing can be loaded; splits are checked when read, as they come in two forms."""
    return [file for file in (*needed, "split") if not (folder / file).exists()]


def _dataset(task: Task, name: str, root: Path, **members: Any) -> Any:
    loader = getattr(importlib.import_module(f"ogb.{task}"), LOADERS[task])
    return _raw.construct(loader, members, name=name, root=str(root))


@contextlib.contextmanager
def _unattended(task: Task) -> Iterator[None]:
    """Answer ogb's questions: yes to the size of a download, no to replacing files by a newer release."""
    module = importlib.import_module(f"ogb.{task}.dataset_pyg")
    with (
        _replaced(module, "decide_download", lambda url: True),
        _replaced(module, "input", lambda question: "n"),
    ):
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
