"""Make a graph fit for training, of one type or of several: what is missing, a split, and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psutil
import torch
from torch import Generator, Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import NormalizeFeatures, ToUndirected
from torch_geometric.utils import to_undirected

from gnnbench import units
from gnnbench.config import DatasetConfig
from gnnbench.datasets._kinds import MASKS, GraphsDataset, LinksDataset, Named, NodeDataset
from gnnbench.datasets._typed import TypedDataset
from gnnbench.errors import DatasetError

FEATURES, LABELS, SPLIT = range(3)  # what a seed is used for, so that each has its own stream


def finish(dataset: NodeDataset, config: DatasetConfig) -> NodeDataset:
    """`dataset` with the options of `config` applied, fit for training; its tensors are never written to.

    Labels and split are left alone where nodes are not what is predicted.

    Raises:
        DatasetError: what makes it unfit, in one sentence with the remedy.
    """
    finish_graph(dataset, config)
    if config.task == "nodes":
        finish_targets(dataset, config, dataset.num_nodes)
    return dataset


def finish_typed(dataset: TypedDataset, config: DatasetConfig) -> TypedDataset:
    """`dataset` with the options of `config` applied, fit for training; its tensors are never written to.

    Raises:
        DatasetError: what makes it unfit, in one sentence with the remedy.
    """
    name = dataset.name
    for key, plain in (("task", "nodes"), ("reorder", "none")):
        if (value := getattr(config, key)) != plain:
            raise DatasetError(f"{name} has types of nodes, and dataset.{key}={value} is of one; leave it out")
    _check_relations(dataset)
    if config.to_undirected:
        dataset.data = ToUndirected()(dataset.data)
    reached = {destination for _, _, destination in dataset.data.edge_types}
    if lonely := [
        kind for kind in dataset.data.node_types if kind not in reached
    ]:  # layers would leave these empty
        raise DatasetError(
            f"{name}: no relation leads to nodes of type {lonely[0]}; add the reverse of each with --set "
            "dataset.to_undirected=true"
        )
    if config.normalize_features:
        dataset.data = NormalizeFeatures(["x"])(dataset.data)
    dataset.embedding = config.embedding
    _fill_features(dataset, config)
    finish_targets(dataset, config, dataset.nodes[dataset.target])
    return dataset


def finish_graph(dataset: NodeDataset | LinksDataset, config: DatasetConfig) -> None:
    """Apply what `config` says of features and edges, and check both; errors as `finish`."""
    _check_graph(dataset.name, dataset.edge_index, dataset.x)
    if not config.embedding:
        if not dataset.x.size(1):
            if not config.random_features:
                raise DatasetError(
                    f"{dataset.name} has no node features; add seeded random ones, marked synthetic, with "
                    f"--set dataset.random_features=128"
                )
            dataset.x = drawn_features(dataset, config, dataset.num_nodes)
        check_finite(dataset.name, dataset.x)
    if config.to_undirected:
        dataset.edge_index = to_undirected(dataset.edge_index, num_nodes=dataset.num_nodes)
    if config.normalize_features:
        dataset.x = NormalizeFeatures()(Data(x=dataset.x)).x


def finish_targets(dataset: NodeDataset | TypedDataset, config: DatasetConfig, nodes: int) -> None:
    """Draw labels and a split of `nodes` where there are none, and check those that are there.

    Raises:
        DatasetError: what makes them unfit.
    """
    name, y = dataset.name, dataset.y
    if y.dim() not in (1, 2):
        raise DatasetError(f"{name}: labels have shape {list(y.shape)}, but must be [N] or [N, T]")
    if len(y) != nodes:
        raise DatasetError(f"{name} has {len(y)} labels, but {nodes} nodes")
    for part in MASKS:
        if (shape := list(getattr(dataset, part).shape)) != [nodes]:
            raise DatasetError(f"{name}: {part} has shape {shape}, but must be [{nodes}]")
    if y.dim() == 1 and bool((y == -1).all()):
        dataset.y = drawn_labels(dataset, config)
        dataset.num_classes, dataset.metric = config.random_labels, "accuracy"
    _check_labels(dataset)
    _split(dataset, config)


def drawn_features(dataset: Named, config: DatasetConfig, nodes: int) -> Tensor:
    """Seeded features [nodes, random_features] float32; DatasetError where they do not fit into memory."""
    check_memory(dataset.name, nodes, config.random_features, "random_features")
    dataset.make_up("features")
    return torch.randn(nodes, config.random_features, generator=_generator(config, FEATURES))


def drawn_labels(dataset: NodeDataset | TypedDataset | GraphsDataset, config: DatasetConfig) -> Tensor:
    """Seeded classes int64, as many as `dataset` has targets; DatasetError where none are asked for."""
    if config.random_labels < 2:
        raise DatasetError(
            f"{dataset.name} has no labels; add seeded random ones, marked synthetic, with "
            f"--set dataset.random_labels=8"
        )
    dataset.make_up("labels")
    return torch.randint(config.random_labels, dataset.y.shape, generator=_generator(config, LABELS))


def drawn_split(dataset: Named, config: DatasetConfig, ids: Tensor) -> Sequence[Tensor]:
    """`ids` in a seeded order, in three parts for training, validation and test."""
    dataset.make_up("split")
    order = ids[torch.randperm(len(ids), generator=_generator(config, SPLIT))]
    train, val = (round(share * len(ids)) for share in (config.train_share, config.val_share))
    val = min(val, len(ids) - train)
    return order.split([train, val, len(ids) - train - val])


def typed(name: str, data: HeteroData) -> TypedDataset:
    """The graph of PyG's `data`, whose labels and masks are of the type of nodes that has some.

    Raises:
        DatasetError: no type, or no single one, has labels.
    """
    labelled = [kind for kind in data.node_types if "y" in data[kind]]
    labelled = [kind for kind in labelled if "train_mask" in data[kind]] or labelled
    if len(labelled) != 1:
        found = " and ".join(labelled) if labelled else "none"
        raise DatasetError(f"{name}: {found} of its types of nodes have labels, and one is to be classified")
    store = data[labelled[0]]
    y = targets(f"{name}, type {labelled[0]}", store.y)
    if y.dim() != 1:
        raise DatasetError(f"{name}: nodes of type {labelled[0]} have several labels each")
    none = torch.zeros(len(y), dtype=torch.bool)
    train, val, test = (store.get(part, none) for part in MASKS)
    return TypedDataset(name, data, labelled[0], y, train, val, test, num_classes=int(y.max()) + 1)


def targets(name: str, y: Tensor) -> Tensor:
    """[N] int64 classes or [N, T] float32 labels, of what sources hold of any type, and as [N, 1] too.

    Raises:
        DatasetError: classes that are no whole numbers.
    """
    if y.dim() == 2 and y.size(1) == 1:
        y = y.squeeze(1)
    if y.dim() == 2:
        return y.float()
    if y.is_floating_point() and not bool((y == y.round()).all()):
        raise DatasetError(f"{name}: labels must be whole numbers, as they are classes")
    return y.long()


def mask_of(nodes: int, chosen: Any) -> Tensor:
    """[N] bool, true at the node ids `chosen`, a tensor or an array."""
    return torch.zeros(nodes, dtype=torch.bool).index_fill_(0, torch.as_tensor(chosen).long(), True)


def check_memory(name: str, nodes: int, columns: int, key: str) -> None:
    """Raises DatasetError where the features that `dataset.<key>` asks for do not fit into memory."""
    need, free = 4 * nodes * columns, psutil.virtual_memory().available
    if need > free:
        raise DatasetError(
            f"{name}: {columns} {key.replace('_', ' ')} for {nodes} nodes need {need / 2**30:.1f} GiB, "
            f"but {free / 2**30:.1f} GiB are free; lower dataset.{key}"
        )


def _check_graph(name: str, edges: Tensor, x: Tensor) -> None:
    """Raises DatasetError where `edges` are no [2, E] of the nodes that have x [N, F], or there are none."""
    if edges.dim() != 2 or edges.size(0) != 2:
        raise DatasetError(f"{name}: edge_index has shape {list(edges.shape)}, but must be [2, E]")
    if x.dim() != 2:
        raise DatasetError(f"{name}: features have shape {list(x.shape)}, but must be [N, F]")
    nodes = len(x)
    if nodes < 2:
        raise DatasetError(f"{name} has {units.counted(nodes, 'node')}; a graph to train on needs at least two")
    if not edges.size(1):
        raise DatasetError(f"{name} has no edges; there is nothing for a graph network to aggregate")
    check_range(name, "an edge", edges, nodes)


def check_range(name: str, what: str, ids: Tensor, nodes: int, of: str = "nodes") -> None:
    """Raises DatasetError where `what` names one of `ids` that is none of so many nodes."""
    if not ids.numel():
        return
    low, high = (int(end) for end in ids.aminmax())
    if low < 0 or high >= nodes:
        raise DatasetError(
            f"{name}: {what} names node {low if low < 0 else high}, which is not there; its {nodes} {of} have ids "
            f"0 to {nodes - 1}"
        )


def check_finite(name: str, x: Tensor) -> None:
    """Raises DatasetError where features [N, F] are no numbers."""
    low, high = x.aminmax()  # NaN if any value is, without a copy of x
    if not bool(torch.isfinite(high - low)):
        row = next(row for row, values in enumerate(x) if not bool(torch.isfinite(values).all()))
        raise DatasetError(f"{name}: the features of node {row} hold NaN or infinity; clean them first")


def _check_labels(dataset: NodeDataset | TypedDataset) -> None:
    name, y = dataset.name, dataset.y
    if dataset.multilabel:
        if not bool(((y == 0) | (y == 1)).all()):
            raise DatasetError(f"{name}: labels of a node must each be 0 or 1, as a node may have several of them")
        return
    (low, high), classes = y.aminmax(), dataset.num_classes
    if int(low) < -1 or int(high) >= classes:
        wrong = int(low) if int(low) < -1 else int(high)
        raise DatasetError(
            f"{name}: label {wrong} is outside the range of its {classes} {'class' if classes == 1 else 'classes'}"
            f", 0 to {classes - 1}, or -1 for none"
        )


def _split(dataset: NodeDataset | TypedDataset, config: DatasetConfig) -> None:
    """Leave unlabelled nodes out; without any split draw one; check what results."""
    labelled = torch.ones(len(dataset.y), dtype=torch.bool) if dataset.multilabel else dataset.y >= 0
    if not any(bool(getattr(dataset, part).any()) for part in MASKS):
        parts = drawn_split(dataset, config, labelled.nonzero().flatten())
        for part, chosen in zip(MASKS, parts, strict=True):
            setattr(dataset, part, mask_of(len(labelled), chosen))
    else:
        for part in MASKS:
            setattr(dataset, part, getattr(dataset, part) & labelled)
    if not bool(dataset.train_mask.any()):
        raise DatasetError(
            f"{dataset.name}: the training split is empty; give labelled nodes to it, "
            f"or raise dataset.train_share where the split is drawn"
        )
    if bool((dataset.train_mask & (dataset.val_mask | dataset.test_mask)).any()):
        raise DatasetError(f"{dataset.name}: training nodes are also validation or test nodes; make them disjoint")


def _check_relations(dataset: TypedDataset) -> None:
    known = dataset.data.node_types
    for relation in dataset.data.edge_types:
        where = f"{dataset.name}: relation {' '.join(relation)}"
        if missing := [kind for kind in (relation[0], relation[2]) if kind not in known]:
            raise DatasetError(
                f"{where} is of type {missing[0]!r}, which is not there; its types of nodes are {', '.join(known)}"
            )
        edges = dataset.data[relation].edge_index
        if edges.dim() != 2 or len(edges) != 2:
            raise DatasetError(f"{where} has edges of shape {list(edges.shape)}, but they must be [2, E]")
        for kind, ids in zip((relation[0], relation[2]), edges, strict=True):
            check_range(where, "an edge", ids, dataset.nodes[kind], f"nodes of type {kind}")


def _fill_features(dataset: TypedDataset, config: DatasetConfig) -> None:
    """Draw features of types without them where vectors are not trained, and check those that are there."""
    for kind, nodes in dataset.nodes.items():
        store = dataset.data[kind]
        if "x" in store:
            store.x = store.x.to_dense().float()
            if len(store.x) != nodes or store.x.dim() != 2:
                shape = list(store.x.shape)
                raise DatasetError(
                    f"{dataset.name}: features of type {kind} have shape {shape}, but must be [{nodes}, F]"
                )
            check_finite(f"{dataset.name}, type {kind}", store.x)
        elif config.random_features and not config.embedding:
            store.x = drawn_features(dataset, config, nodes)
        elif not config.embedding:
            raise DatasetError(
                f"{dataset.name}: nodes of type {kind} have no features; train vectors for them with --set "
                "dataset.embedding=64, or add seeded random features with --set dataset.random_features=64"
            )


def _generator(config: DatasetConfig, purpose: int) -> Generator:
    """Random numbers of their own for each of FEATURES, LABELS and SPLIT."""
    return torch.Generator().manual_seed(3 * config.seed + purpose)
