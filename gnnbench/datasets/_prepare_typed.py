"""Steps that all sources of typed graphs share: reverse relations, what is missing, and checks before training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnbench.config import DatasetConfig
from gnnbench.datasets import _prepare
from gnnbench.datasets._typed import TypedDataset
from gnnbench.errors import DatasetError

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData


def of(name: str, data: HeteroData) -> TypedDataset:
    """The graph of PyG's `data`, whose labels and masks are of the type of nodes that has some.

    Raises:
        DatasetError: no type, or no single one, has labels.
    """
    import torch

    labelled = [kind for kind in data.node_types if "y" in data[kind]]
    labelled = [kind for kind in labelled if "train_mask" in data[kind]] or labelled
    if len(labelled) != 1:
        found = " and ".join(labelled) if labelled else "none"
        raise DatasetError(f"{name}: {found} of its types of nodes have labels, and one is to be classified")
    store = data[labelled[0]]
    y = _prepare.targets(f"{name}, type {labelled[0]}", store.y)
    if y.dim() != 1:
        raise DatasetError(f"{name}: nodes of type {labelled[0]} have several labels each")
    none = torch.zeros(len(y), dtype=torch.bool)
    train, val, test = (store.get(part, none) for part in _prepare.PARTS)
    return TypedDataset(name, data, labelled[0], y, train, val, test, num_classes=int(y.max()) + 1)


def finish(dataset: TypedDataset, config: DatasetConfig) -> TypedDataset:
    """`dataset` with the options of `config` applied, fit for training; its tensors are never written to.

    Raises:
        DatasetError: what makes it unfit, in one sentence with the remedy.
    """
    from torch_geometric.transforms import NormalizeFeatures, ToUndirected

    name = dataset.name
    for key, plain in (("task", "nodes"), ("reorder", "none")):
        if (value := getattr(config, key)) != plain:
            raise DatasetError(f"{name} has types of nodes, and dataset.{key}={value} is of one; leave it out")
    _check_relations(dataset)
    if config.to_undirected:
        dataset.data = ToUndirected()(dataset.data)
    _check_reached(dataset)
    if config.normalize_features:
        dataset.data = NormalizeFeatures(["x"])(dataset.data)
    dataset.embedding = config.embedding
    _fill_features(dataset, config)
    _prepare.finish_targets(dataset, config, dataset.nodes[dataset.target])
    return dataset


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
            _prepare.check_range(where, "an edge", ids, dataset.nodes[kind], f"nodes of type {kind}")


def _check_reached(dataset: TypedDataset) -> None:
    """Raises DatasetError unless every type of nodes has in-edges, as layers pass on only what these bring."""
    reached = {destination for _, _, destination in dataset.data.edge_types}
    if lonely := [kind for kind in dataset.data.node_types if kind not in reached]:
        raise DatasetError(
            f"{dataset.name}: no relation leads to nodes of type {lonely[0]}; add the reverse of each with --set "
            "dataset.to_undirected=true"
        )


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
            _prepare.check_finite(f"{dataset.name}, type {kind}", store.x)
        elif config.random_features and not config.embedding:
            store.x = _prepare.drawn_features(dataset, config, nodes)
        elif not config.embedding:
            raise DatasetError(
                f"{dataset.name}: nodes of type {kind} have no features; train vectors for them with --set "
                "dataset.embedding=64, or add seeded random features with --set dataset.random_features=64"
            )
