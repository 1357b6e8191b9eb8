"""Steps that all sources of many graphs share: options, missing features and splits, metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gnnbench.config import DatasetConfig
from gnnbench.datasets import _check_graphs, _ogb, _prepare
from gnnbench.datasets._graphs import PARTS, GraphsConfig, GraphsDataset, Target
from gnnbench.errors import DatasetError

if TYPE_CHECKING:
    from torch import Tensor

EDGELESS = 0.01  # share of graphs without edges that is worth a note


def finish(dataset: GraphsDataset, config: DatasetConfig) -> GraphsDataset:
    """`dataset` with the options of `config` applied, fit for training; its tensors are never written to.

    Raises:
        DatasetError: what makes it unfit, in one sentence with the remedy.
    """
    if config.reorder != "none":
        raise DatasetError(
            f"dataset.reorder: {config.reorder} renumbers the nodes of one large graph; leave it out for the "
            f"{dataset.num_graphs:,} graphs of {dataset.name}"
        )
    _check_graphs.structure(dataset)
    _fill(dataset, config)
    _check_graphs.values(dataset)
    _split(dataset, config)
    if config.to_undirected:
        _to_undirected(dataset)
    if config.normalize_features:
        _normalize_features(dataset)
    edgeless = int((dataset.edge_ptr.diff() == 0).sum())
    if edgeless > EDGELESS * dataset.num_graphs:
        dataset.notes.append(f"{edgeless:,} of the {dataset.num_graphs:,} graphs have no edges")
    return dataset


def plain_metric(target: Target, outputs: int) -> dict[str, Any]:
    """The fields `metric` and `score` of a dataset that brings no evaluator of its own."""
    score: Callable[[Tensor, Tensor], float]
    if target == "labels":
        metric, score = _ogb.metric_by_label("rocauc", outputs)
        return {"metric": metric, "score": score}
    if target == "value":
        return {"metric": "negative MAE", "score": negative_mae}
    return {"metric": "accuracy", "score": _prepare.accuracy}


def negative_mae(outputs: Tensor, y: Tensor) -> float:
    """Mean absolute error of [M, T] values, less than zero so that higher is better; NaN without rows."""
    return -float((outputs - y).abs().double().mean())


def macro_f1(outputs: Tensor, y: Tensor) -> float:
    """Mean F1 of the classes that occur among [M] targets or predictions from [M, C] outputs; NaN without rows."""
    import torch

    guess, classes = outputs.argmax(-1), outputs.size(-1)
    right = torch.bincount(y[guess == y], minlength=classes).double()
    total = torch.bincount(guess, minlength=classes) + torch.bincount(y, minlength=classes)
    return float((2 * right / total)[total > 0].mean())


def fold_of(classes: Tensor, folds: int, seed: int) -> Tensor:
    """[G] int64 from 0: a random fold for each graph, so that all have about equally many of each class."""
    import torch

    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))
    order = order[classes[order].argsort(stable=True)]  # those of a class side by side are dealt out in turn
    fold = torch.zeros_like(order)
    fold[order] = torch.arange(len(classes)) % folds
    return fold


def _fill(dataset: GraphsDataset, config: DatasetConfig) -> None:
    import torch

    if not dataset.x.size(1):
        columns = config.degree_features if isinstance(config, GraphsConfig) else 0
        key, width = ("degree_features", columns) if columns else ("random_features", config.random_features)
        if not width:
            raise DatasetError(
                f"{dataset.name} has no node features; take degrees with --set dataset.degree_features=64, "
                f"or add seeded random ones, marked synthetic, with --set dataset.random_features=16"
            )
        _prepare.check_memory(dataset.name, dataset.num_nodes, width, key)
        if columns:
            dataset.x = _degrees(dataset, columns)
            dataset.notes.append(
                f"nodes have no features; they get their in-degree, one-hot in {columns} columns "
                f"(dataset.degree_features; 0 leaves it to dataset.random_features)"
            )
        else:
            generator = _prepare.generator(config, _prepare.FEATURES)
            dataset.x = torch.randn(dataset.num_nodes, width, generator=generator)
            dataset.made_up.append("features")
    if dataset.target == "class" and dataset.y.numel() and int(dataset.y.max()) == int(dataset.y.min()) == -1:
        if config.random_labels < 2:
            raise DatasetError(
                f"{dataset.name} has no targets; add seeded random classes, marked synthetic, with "
                f"--set dataset.random_labels=8"
            )
        generator = _prepare.generator(config, _prepare.LABELS)
        dataset.y = torch.randint(config.random_labels, dataset.y.shape, generator=generator)
        dataset.num_outputs = config.random_labels
        dataset.made_up.append("labels")


def _degrees(dataset: GraphsDataset, columns: int) -> Tensor:
    """[N, columns] float32: a one in the column of the node's in-degree, the last for all larger ones."""
    import torch

    first = dataset.graph_ptr[:-1].repeat_interleave(dataset.edge_ptr.diff())
    degree = torch.bincount(first + dataset.edge_index[1], minlength=dataset.num_nodes)
    x = torch.zeros(dataset.num_nodes, columns)
    return x.scatter_(1, degree.clamp(max=columns - 1).unsqueeze(1), 1.0)


def _split(dataset: GraphsDataset, config: DatasetConfig) -> None:
    """Without any split draw one over the graphs that have targets; check what results."""
    import torch

    none = torch.empty(0, dtype=torch.long)
    if not any(ids.numel() for ids in dataset.parts.values()):
        graphs = (~_check_graphs.without_class(dataset)).nonzero().flatten()
        order = graphs[torch.randperm(len(graphs), generator=_prepare.generator(config, _prepare.SPLIT))]
        train, val = (round(share * len(graphs)) for share in (config.train_share, config.val_share))
        val = min(val, len(graphs) - train)
        sizes = [train, val, len(graphs) - train - val]
        dataset.parts = dict(zip(PARTS, order.split(sizes), strict=True))
        dataset.made_up += [] if "split" in dataset.made_up else ["split"]
    else:
        dataset.parts = {**dict.fromkeys(PARTS, none), **dataset.parts}
    _check_graphs.split(dataset)


def _to_undirected(dataset: GraphsDataset) -> None:
    """Add the reverse of every edge; edges are then ordered by source and destination."""
    import torch
    from torch_geometric.utils import to_undirected

    if dataset.edge_attr is not None:
        raise DatasetError(
            f"dataset.to_undirected: the edges of {dataset.name} have features, which their reverses would lack; "
            f"leave it out"
        )
    first = dataset.graph_ptr[:-1].repeat_interleave(dataset.edge_ptr.diff())
    edges = to_undirected(dataset.edge_index.long() + first, num_nodes=dataset.num_nodes)
    owner = torch.searchsorted(dataset.graph_ptr, edges[0], right=True) - 1
    counts = torch.bincount(owner, minlength=dataset.num_graphs)
    dataset.edge_ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    dataset.edge_index = (edges - dataset.graph_ptr[owner]).int()


def _normalize_features(dataset: GraphsDataset) -> None:
    """As PyG's NormalizeFeatures does, graph by graph."""
    import torch

    if not dataset.x.is_floating_point():
        raise DatasetError(f"dataset.normalize_features: {dataset.name} has categories as features; leave it out")
    lowest = torch.segment_reduce(dataset.x.amin(1), "min", lengths=dataset.graph_ptr.diff())
    x = dataset.x - lowest.repeat_interleave(dataset.graph_ptr.diff()).unsqueeze(1)
    dataset.x = x.div_(x.sum(dim=-1, keepdim=True).clamp_(min=1.0))
