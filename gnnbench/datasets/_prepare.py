"""Make one graph fit for training, of one type, of several, or of links: what is missing, a split, and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psutil
import torch
from torch import Generator, Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import NormalizeFeatures, RandomLinkSplit, ToUndirected
from torch_geometric.utils import coalesce, is_undirected, remove_self_loops, to_undirected

from gnnbench import units
from gnnbench.config import DatasetConfig
from gnnbench.datasets import _disk
from gnnbench.datasets._kinds import EVALUATED, MASKS, SPLITS, LinksDataset, Named, NodeDataset, TypedDataset
from gnnbench.errors import DatasetError

FEATURES, LABELS, SPLIT = range(3)  # what a seed is used for, so that each has its own stream
NEGATIVES = 1 << 32  # likewise, of links
DRAWS = 64  # of destinations that may be links


def finish(dataset: NodeDataset, config: DatasetConfig) -> NodeDataset:
    """`dataset` with the options of `config` applied, fit for training; its tensors are never written to.

    Labels and split are left alone where nodes are not what is predicted.
    """
    finish_graph(dataset, config)
    if config.task == "nodes":
        finish_targets(dataset, config, dataset.num_nodes)
    return dataset


def finish_typed(dataset: TypedDataset, config: DatasetConfig) -> TypedDataset:
    """`dataset` with the options of `config` applied, fit for training; its tensors are never written to."""
    name = dataset.name
    for key, plain in (("task", "nodes"), ("reorder", "none")):
        if (value := getattr(config, key)) != plain:
            raise DatasetError(f"{name} has types of nodes, and dataset.{key}={value} is of one; leave it out")
    _check_relations(dataset)
    if config.to_undirected:
        dataset.data = ToUndirected()(dataset.data)
    reached = {destination for _, _, destination in dataset.data.edge_types}
    if lonely := [kind for kind in dataset.data.node_types if kind not in reached]:  # which layers leave empty
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
    name, edges, x, nodes = dataset.name, dataset.edge_index, dataset.x, dataset.num_nodes
    if edges.dim() != 2 or edges.size(0) != 2:
        raise DatasetError(f"{name}: edge_index has shape {list(edges.shape)}, but must be [2, E]")
    if x.dim() != 2:
        raise DatasetError(f"{name}: features have shape {list(x.shape)}, but must be [N, F]")
    if nodes < 2:
        raise DatasetError(f"{name} has {units.counted(nodes, 'node')}; a graph to train on needs at least two")
    if not edges.size(1):
        raise DatasetError(f"{name} has no edges; there is nothing for a graph network to aggregate")
    check_range(name, "an edge", edges, nodes)
    if not config.embedding:
        if not dataset.x.size(1):
            dataset.x = drawn_features(dataset, config, nodes, "has no node features; ")
        check_finite(name, dataset.x)
    if config.to_undirected:
        dataset.edge_index = to_undirected(edges, num_nodes=nodes)
    if config.normalize_features:
        dataset.x = NormalizeFeatures()(Data(x=dataset.x)).x


def finish_targets(dataset: NodeDataset | TypedDataset, config: DatasetConfig, nodes: int) -> None:
    """Draw labels and a split of `nodes` where there are none, and check those that are there."""
    name, y = dataset.name, dataset.y
    if y.dim() not in (1, 2) or len(y) != nodes:
        raise DatasetError(f"{name}: labels have shape {list(y.shape)}, but must be [{nodes}] or [{nodes}, T]")
    for mask in MASKS:
        if (shape := list(getattr(dataset, mask).shape)) != [nodes]:
            raise DatasetError(f"{name}: {mask} has shape {shape}, but must be [{nodes}]")
    if y.dim() == 1 and bool((y == -1).all()):
        dataset.y = drawn_labels(dataset, config)
        dataset.num_classes, dataset.metric = config.random_labels, "accuracy"
    _check_labels(dataset)
    _split(dataset, config)


def split_links(dataset: NodeDataset, config: DatasetConfig) -> LinksDataset:
    """The edges of one graph in three splits by PyG's `RandomLinkSplit`, those of training for messages too.

    Loops and edges that repeat another one are no links, for a copy in another split would give them away.
    """
    edge_index = coalesce(remove_self_loops(dataset.edge_index)[0], num_nodes=dataset.num_nodes)
    data = Data(edge_index=edge_index, num_nodes=dataset.num_nodes)
    options = {"is_undirected": is_undirected(edge_index, num_nodes=dataset.num_nodes), "split_labels": True}
    test_share = round(1 - config.train_share - config.val_share, 9)
    splitter = RandomLinkSplit(config.val_share, test_share, add_negative_train_samples=False, **options)
    try:
        with _disk.seeded(config.seed):
            splits = dict(zip(SPLITS, splitter(data), strict=True))
    except ValueError:
        raise DatasetError(
            f"{dataset.name}: {edge_index.size(1)} edges leave none for training; raise dataset.train_share"
        ) from None
    repeated = dataset.num_edges - edge_index.size(1)
    note = f"{repeated} loops and repeated edges are left out, as a copy in another split would give a link away"
    return finish_links(
        LinksDataset(
            dataset.name,
            splits["train"].edge_index,
            dataset.x,
            positives={split: each.pos_edge_label_index for split, each in splits.items()},
            negatives={
                split: getattr(splits[split], "neg_edge_label_index", edge_index[:, :0]) for split in EVALUATED
            },
            synthetic_parts=[*dataset.synthetic_parts, "split"],
            notes=[*dataset.notes, *[note] * bool(repeated)],
        ),
        config,
    )


def finish_links(dataset: LinksDataset, config: DatasetConfig) -> LinksDataset:
    """`dataset` with a metric and negatives, once its graph and features are what they are to be."""
    if not dataset.positives["train"].size(1):
        raise DatasetError(f"{dataset.name} has no training links; give some to the split 'train'")
    for split, pairs in dataset.positives.items():
        check_range(dataset.name, f"a {split} link", pairs, dataset.num_nodes)
    if config.embedding:
        dataset.embedding, dataset.x = config.embedding, torch.arange(dataset.num_nodes)
    if config.negatives or not dataset.negatives:
        if "split" not in dataset.synthetic_parts:
            dataset.add_synthetic("negatives")
        _draw_negatives(dataset, config)
    for split in EVALUATED:
        links, negatives = dataset.positives[split].size(1), dataset.negatives[split]
        if links and not negatives.numel():
            raise DatasetError(
                f"{dataset.name} has no negatives for its {links} {split} links; list some, or leave out those of "
                "all splits to have them drawn"
            )
        check_range(dataset.name, f"a {split} negative", negatives, dataset.num_nodes)
    dataset.metric = config.metric or dataset.metric or ("mrr" if dataset.ranked else "auc")
    _check_metric(dataset)
    _check_leak(dataset)
    return dataset


def drawn_features(dataset: Named, config: DatasetConfig, nodes: int, lacks: str) -> Tensor:
    """Seeded features [nodes, random_features] float32; DatasetError with what it `lacks` if none are asked."""
    if not config.random_features:
        raise DatasetError(
            f"{dataset.name} {lacks}add seeded random ones, marked synthetic, with --set "
            "dataset.random_features=128"
        )
    check_memory(dataset.name, nodes, config.random_features, "random_features")
    dataset.add_synthetic("features")
    return torch.randn(nodes, config.random_features, generator=_generator(config, FEATURES))


def drawn_labels(dataset: Any, config: DatasetConfig) -> Tensor:
    """Seeded classes int64, as many as `dataset` has targets; DatasetError where none are asked for."""
    if config.random_labels < 2:
        raise DatasetError(
            f"{dataset.name} has no labels; add seeded random ones, marked synthetic, with "
            f"--set dataset.random_labels=8"
        )
    dataset.add_synthetic("labels")
    return torch.randint(config.random_labels, dataset.y.shape, generator=_generator(config, LABELS))


def drawn_split(dataset: Named, config: DatasetConfig, ids: Tensor) -> Sequence[Tensor]:
    """`ids` in a seeded order, in three splits for training, validation and test."""
    dataset.add_synthetic("split")
    order = ids[torch.randperm(len(ids), generator=_generator(config, SPLIT))]
    train, val = (round(share * len(ids)) for share in (config.train_share, config.val_share))
    val = min(val, len(ids) - train)
    return order.split([train, val, len(ids) - train - val])


def typed(name: str, data: HeteroData) -> TypedDataset:
    """The graph of PyG's `data`, whose labels and masks are of the type of nodes that has some."""
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
    train, val, test = (store.get(name, none) for name in MASKS)
    return TypedDataset(name, data, labelled[0], y, train, val, test, num_classes=int(y.max()) + 1)


def targets(name: str, y: Tensor) -> Tensor:
    """[N] int64 classes or [N, T] float32 labels, of what sources hold of any type, and as [N, 1] too."""
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


def check_range(name: str, what: str, ids: Tensor, count: int, of: str = "nodes") -> None:
    """Raises DatasetError where `what` names one of `ids` that is none of so many nodes, or graphs."""
    if not ids.numel():
        return
    low, high = (int(end) for end in ids.aminmax())
    if low < 0 or high >= count:
        raise DatasetError(
            f"{name}: {what} names {of.partition('s')[0]} {low if low < 0 else high}, which is not there; its "
            f"{count} {of} have ids 0 to {count - 1}"
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
    if not any(bool(getattr(dataset, name).any()) for name in MASKS):
        splits = drawn_split(dataset, config, labelled.nonzero().flatten())
        for name, chosen in zip(MASKS, splits, strict=True):
            setattr(dataset, name, mask_of(len(labelled), chosen))
    else:
        for name in MASKS:
            setattr(dataset, name, getattr(dataset, name) & labelled)
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
        elif not config.embedding:
            lacks = f"has no features of type {kind}; train vectors with --set dataset.embedding=64, or "
            store.x = drawn_features(dataset, config, nodes, lacks)


def _generator(config: DatasetConfig, purpose: int) -> Generator:
    """Random numbers of their own for each of FEATURES, LABELS and SPLIT."""
    return torch.Generator().manual_seed(3 * config.seed + purpose)


def _draw_negatives(dataset: LinksDataset, config: DatasetConfig) -> None:
    """Draw for each evaluated link `config.negatives` destinations that are no links, or one pair in a list."""
    generator = torch.Generator().manual_seed(NEGATIVES + config.seed)
    known = torch.cat([dataset.edge_index, *dataset.positives.values()], 1)
    keys = dataset.keys(known).unique()
    dataset.ranked = config.negatives > 0
    for split in EVALUATED:
        links = dataset.positives[split]
        sources = links[0].repeat_interleave(max(config.negatives, 1))
        if not dataset.ranked:
            sources = torch.randint(dataset.num_nodes, sources.shape, generator=generator)
        drawn = torch.randint(dataset.num_nodes, sources.shape, generator=generator)
        for _ in range(DRAWS):
            wrong = (drawn == sources) | torch.isin(dataset.keys(torch.stack([sources, drawn])), keys)
            if not bool(wrong.any()):
                break
            drawn[wrong] = torch.randint(dataset.num_nodes, (int(wrong.sum()),), generator=generator)
        else:
            raise DatasetError(
                f"{dataset.name}: no negatives can be drawn, as a source is linked to nearly all nodes; give a "
                "list of them"
            )
        dataset.negatives[split] = (
            drawn.view(links.size(1), -1) if dataset.ranked else torch.stack([sources, drawn])
        )


def _check_metric(dataset: LinksDataset) -> None:
    name, metric = dataset.name, dataset.metric
    if dataset.relations is not None and not dataset.ranked:
        raise DatasetError(
            f"{name} has typed links, but its negatives have no type; draw some for each link, of its type, with "
            "--set dataset.negatives=100"
        )
    if metric == "mrr" and not dataset.ranked:
        raise DatasetError(
            f"{name} has one list of negatives for all links, which metric mrr does not fit; choose hits@K, auc "
            "or ap, or draw some for each link with --set dataset.negatives=100"
        )
    if metric != "mrr" and dataset.ranked:
        raise DatasetError(
            f"{name} has negatives of its own for each link, which metric {metric} does not fit; choose mrr"
        )
    if metric.startswith("hits@"):
        rank = int(metric.partition("@")[2])
        sizes = (dataset.negatives[split].size(1) for split in EVALUATED if dataset.positives[split].size(1))
        fewest = min(sizes, default=rank)
        if rank > fewest:
            raise DatasetError(
                f"{name} has a list of {fewest} negatives, among which {metric} is always 1; choose a smaller K"
            )


def _check_leak(dataset: LinksDataset) -> None:
    """Refuse edges of messages, and training links, that are to be predicted.

    An edge in the other direction is one too, as no decoder tells both directions apart; but typed links are held
    against those of their type and direction alone. What a benchmark's own split repeats is told instead.
    """
    relations = dataset.relations or dict.fromkeys(dataset.positives)
    seen = _keys(dataset, dataset.positives["train"], relations["train"])
    if dataset.relations is None:
        seen = torch.cat([seen, _keys(dataset, dataset.edge_index, None)])
    for split in EVALUATED:
        leaks = torch.isin(_keys(dataset, dataset.positives[split], relations[split]), seen).nonzero().flatten()
        if not len(leaks):
            continue
        if dataset.own_split:
            share = len(leaks) / dataset.positives[split].size(1)
            dataset.notes.append(f"{share:.1%} of the {split} links are edges of messages too, in its own split")
            continue
        src, dst = dataset.positives[split][:, leaks[0]].tolist()
        remedy = "leave them out of the graph"
        if "split" in dataset.synthetic_parts:
            remedy = "make one link of both directions with --set dataset.to_undirected=true"
        raise DatasetError(
            f"{dataset.name}: {split} link {src} -> {dst} is also an edge of messages or a training link, or its "
            f"reverse is, as of {len(leaks)}; {remedy}, or evaluation would see what it asks for"
        )


def _keys(dataset: LinksDataset, pairs: Tensor, relation: Tensor | None) -> Tensor:
    """Numbers [P] that links share with those that give them away."""
    if relation is None:
        return dataset.keys(torch.stack([*pairs.aminmax(dim=0)]))
    return dataset.keys(pairs) * dataset.num_relations + relation
