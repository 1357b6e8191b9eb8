"""Many graphs taken over from PyG; and what all sources share: options, missing features and splits, checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import to_undirected

from gnnbench.config import DatasetConfig
from gnnbench.datasets import _prepare
from gnnbench.datasets._kinds import SPLITS, GraphsConfig, GraphsDataset, Target
from gnnbench.errors import DatasetError, GraphError
from gnnbench.graph import union
from gnnbench.graph.layout import ptr_of

EDGELESS = 0.01  # share of graphs without edges that is worth a note


def finish(dataset: GraphsDataset, config: DatasetConfig) -> GraphsDataset:
    """`dataset` with the options of `config` applied, fit for training; its tensors are never written to."""
    if config.reorder != "none":
        raise DatasetError(
            f"dataset.reorder: {config.reorder} renumbers the nodes of one large graph; leave it out for the "
            f"{dataset.num_graphs:,} graphs of {dataset.name}"
        )
    _check_structure(dataset)
    _fill(dataset, config)
    _check_features(dataset, dataset.x, dataset.graph_ptr, "node")
    if (of_edges := dataset.edge_attr) is not None:
        if len(of_edges) != dataset.num_edges:
            raise DatasetError(
                f"{dataset.name} has features of {len(of_edges)} edges, but {dataset.num_edges} edges"
            )
        _check_features(dataset, of_edges, dataset.edge_ptr, "edge")
    _check_targets(dataset)
    _split(dataset, config)
    if config.to_undirected:
        _to_undirected(dataset)
    if config.normalize_features:
        _normalize_features(dataset)
    edgeless = int((dataset.edge_ptr.diff() == 0).sum())
    if edgeless > EDGELESS * dataset.num_graphs:
        dataset.notes.append(f"{edgeless:,} of the {dataset.num_graphs:,} graphs have no edges")
    return dataset


def from_pyg(
    name: str, dataset: Any, target: Target | None = None, *, with_positions: bool = False, **facts: Any
) -> GraphsDataset:
    """The graphs of a `torch_geometric.data.InMemoryDataset`, in its order and with its order of edges.

    Args:
        dataset: or the datasets of all splits by their names, which are joined.
        target: what their `y` holds; None for classes where that is a whole number for each graph, or for each
            node, else values. Without `y` all graphs are of class -1.
        with_positions: whether positions of nodes follow their features.
        facts: attributes of the result, in place of what the graphs say.
    """
    given = dataset if isinstance(dataset, Mapping) else {"": dataset}
    unions = [_arrays(f"{name} {split}".rstrip(), each, with_positions) for split, each in given.items()]
    counts = [len(union["nodes"]) for union in unions]
    ids = torch.arange(sum(counts)).split(counts)
    expected, *widths = ([union[key].size(1) for key in ("x", "edge_attr")] for union in unions)
    for own, graphs in zip(widths, ids[1:], strict=True):
        if own != expected:
            raise DatasetError(
                f"{name}: graph {int(graphs[0])} has {own[0]} features of nodes and {own[1]} of edges, but graph "
                f"0 has {expected[0]} and {expected[1]}; all graphs need equally many"
            )
    joined = unions[0]
    if len(unions) > 1:
        joined = {key: torch.cat([union[key] for union in unions], int(key == "edge_index")) for key in joined}
    y = joined["y"]
    if target is None:
        target = "value" if y.is_floating_point() or y.numel() != len(y) else "class"
    y = y.flatten().long() if target == "class" else (y.unsqueeze(1) if y.dim() == 1 else y).float()
    found: dict[str, Any] = {
        "splits": dict(zip(given, ids, strict=True)) if dataset is given else {},
        "num_outputs": y.size(1) if target != "class" else int(y.max()) + 1 if y.numel() else 0,
        "per_node": len(y) == len(joined["x"]) != sum(counts),
        "edge_attr": joined["edge_attr"] if expected[1] else None,
    }
    return GraphsDataset(
        name,
        ptr_of(joined["nodes"]),
        ptr_of(joined["edges"]),
        joined["edge_index"],
        joined["x"],
        y,
        target=target,
        **found | facts,
    )


def _arrays(name: str, dataset: Any, with_positions: bool) -> dict[str, Tensor]:
    """`edge_index`, `x`, `y` and `edge_attr` of all graphs, and how many `nodes` and `edges` each has."""
    data, slices = dataset._data, dataset.slices or {}  # none where there is a single graph
    if data.edge_index is None:
        raise DatasetError(f"{name}: its graphs have no edge_index; gnnbench trains on graphs of one type")

    def sizes(key: str) -> Tensor:
        rows = data[key].size(1 if key == "edge_index" else 0)
        return slices[key].long().diff() if key in slices else torch.tensor([rows])

    if data.x is not None:
        nodes, x = sizes("x"), _table(data.x)
    else:
        nodes = torch.as_tensor(getattr(data._store, "_num_nodes", [data.num_nodes]))
        x = torch.empty(int(nodes.sum()), 0)
    edges = sizes("edge_index")
    edgeless = edges.new_zeros(len(nodes) - len(edges))  # those at the end, which TUDataset forgets
    return {
        "nodes": nodes,
        "edges": torch.cat([edges, edgeless]),
        "edge_index": data.edge_index.int(),
        "x": torch.cat([x, _table(data.pos)], 1) if with_positions and data.pos is not None else x,
        "y": torch.full((len(nodes),), -1) if data.y is None else data.y,
        "edge_attr": torch.empty(int(edges.sum()), 0) if data.edge_attr is None else _table(data.edge_attr),
    }


def _table(values: Tensor) -> Tensor:
    """[rows, columns], float32 or int64."""
    table = values.unsqueeze(1) if values.dim() == 1 else values
    return table.float() if table.is_floating_point() else table.long()


def fold_of(classes: Tensor, folds: int, seed: int) -> Tensor:
    """[G] int64 from 0: a random fold for each graph, so that all have about equally many of each class."""
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))
    order = order[classes[order].argsort(stable=True)]  # those of a class side by side are dealt out in turn
    fold = torch.zeros_like(order)
    fold[order] = torch.arange(len(classes)) % folds
    return fold


def _fill(dataset: GraphsDataset, config: DatasetConfig) -> None:
    if not dataset.x.size(1):
        if columns := config.degree_features if isinstance(config, GraphsConfig) else 0:
            _prepare.check_memory(dataset.name, dataset.num_nodes, columns, "degree_features")
            degree = torch.bincount(dataset.starts() + dataset.edge_index[1], minlength=dataset.num_nodes)
            column = degree.clamp(max=columns - 1).unsqueeze(1)  # the last one is of all larger ones
            dataset.x = torch.zeros(dataset.num_nodes, columns).scatter_(1, column, 1.0)
            dataset.notes.append(
                f"nodes have no features; they get their in-degree, one-hot in {columns} columns "
                f"(dataset.degree_features; 0 leaves it to dataset.random_features)"
            )
        else:
            lacks = "has no node features; take degrees with --set dataset.degree_features=64, or "
            dataset.x = _prepare.drawn_features(dataset, config, dataset.num_nodes, lacks)
    if dataset.target == "class" and bool((dataset.y == -1).all()):
        dataset.y, dataset.num_outputs = _prepare.drawn_labels(dataset, config), config.random_labels


def _split(dataset: GraphsDataset, config: DatasetConfig) -> None:
    """Without any split draw one over the graphs that have targets; check what results."""
    if not any(ids.numel() for ids in dataset.splits.values()):
        drawn = _prepare.drawn_split(dataset, config, (~_without_class(dataset)).nonzero().flatten())
        dataset.splits = dict(zip(SPLITS, drawn, strict=True))
    else:
        dataset.splits = {**dict.fromkeys(SPLITS, torch.empty(0, dtype=torch.long)), **dataset.splits}
    name, graphs = dataset.name, dataset.num_graphs
    if unknown := dataset.splits.keys() - set(SPLITS):
        raise DatasetError(f"{name}: unknown split {min(unknown)!r}; allowed: {', '.join(SPLITS)}")
    ids = torch.cat([dataset.splits[split] for split in SPLITS])
    _prepare.check_range(name, "its split", ids, graphs, "graphs")
    if not dataset.splits["train"].numel():
        raise DatasetError(
            f"{name}: the training split is empty; give graphs to it, "
            f"or raise dataset.train_share where the split is drawn"
        )
    uses = torch.bincount(ids, minlength=graphs)
    if bool((uses > 1).any()):
        graph = _first(uses > 1)
        twice = [split for split in SPLITS for _ in range(int((dataset.splits[split] == graph).sum()))]
        raise DatasetError(
            f"{name}: graph {graph} is in {' and in '.join(twice)}; every graph is in one split, once"
        )
    if bool((missing := (uses > 0) & _without_class(dataset)).any()):
        raise DatasetError(
            f"{name}: graph {_first(missing)} has no class{' at some node' * dataset.per_node}; "
            f"give it one, or leave it out of the split"
        )


def _to_undirected(dataset: GraphsDataset) -> None:
    """Add the reverse of every edge; edges are then ordered by source and destination."""
    if dataset.edge_attr is not None:
        raise DatasetError(
            f"dataset.to_undirected: the edges of {dataset.name} have features, which their reverses would lack; "
            f"leave it out"
        )
    edges = to_undirected(dataset.edge_index.long() + dataset.starts(), num_nodes=dataset.num_nodes)
    owner = _owners(dataset.graph_ptr, edges[0])
    dataset.edge_ptr = ptr_of(torch.bincount(owner, minlength=dataset.num_graphs))
    dataset.edge_index = (edges - dataset.graph_ptr[owner]).int()


def _normalize_features(dataset: GraphsDataset) -> None:
    """Scale rows as PyG's NormalizeFeatures does, graph by graph."""
    if not dataset.x.is_floating_point():
        raise DatasetError(f"dataset.normalize_features: {dataset.name} has categories as features; leave it out")
    lowest = torch.segment_reduce(dataset.x.amin(1), "min", lengths=dataset.graph_ptr.diff())
    x = dataset.x - lowest.repeat_interleave(dataset.graph_ptr.diff()).unsqueeze(1)
    dataset.x = x.div_(x.sum(dim=-1, keepdim=True).clamp_(min=1.0))


def _check_structure(dataset: GraphsDataset) -> None:
    """Pointers ascend and fit the tensors, every graph has nodes, and edges stay within their graph."""
    try:
        graph_ptr, _ = union.checked(dataset.graph_ptr, dataset.edge_ptr, dataset.edge_index)
    except GraphError as error:
        raise DatasetError(f"{dataset.name}: {error}") from None
    if graph_ptr[-1] != dataset.num_nodes:
        raise DatasetError(
            f"{dataset.name}: graph_ptr ends at {int(graph_ptr[-1])}, but there are {dataset.num_nodes} nodes"
        )
    if bool((empty := graph_ptr.diff() == 0).any()):
        raise DatasetError(f"{dataset.name}: graph {_first(empty)} has no nodes; leave it out")
    if not dataset.num_edges:
        raise DatasetError(f"{dataset.name}: none of its graphs has an edge; there is nothing to aggregate")


def _without_class(dataset: GraphsDataset) -> Tensor:
    """[G] bool: graphs that have no class, or have nodes without."""
    if dataset.target != "class":
        return torch.zeros(dataset.num_graphs, dtype=torch.bool)
    if not dataset.per_node:
        return dataset.y < 0
    nodes = (dataset.y < 0).nonzero().flatten()
    return torch.bincount(_owners(dataset.graph_ptr, nodes), minlength=dataset.num_graphs) > 0


def _check_features(dataset: GraphsDataset, table: Tensor, ptr: Tensor, noun: str) -> None:
    """Raises DatasetError unless they are finite, or categories that the encoder knows."""
    if table.is_floating_point():
        if not table.numel() or bool(torch.isfinite(torch.stack(table.aminmax())).all()):  # NaN if any value is
            return
        row = _first(~torch.isfinite(table).all(1))
        problem = "hold NaN or infinity; clean them first"
    else:
        from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

        known = torch.tensor(get_atom_feature_dims() if noun == "node" else get_bond_feature_dims())
        if dataset.encoder != "ogb" or table.size(1) != len(known):
            raise DatasetError(
                f"{dataset.name}: the {noun} features are {table.size(1)} whole numbers; give them as float32"
            )
        wrong = ((table < 0) | (table >= known)).any(1)
        if not bool(wrong.any()):
            return
        row = _first(wrong)
        problem = f"are not categories that OGB's encoder knows: {table[row].tolist()}"
    raise DatasetError(f"{dataset.name}: the features of {_place(noun, ptr, row)} {problem}")


def _check_targets(dataset: GraphsDataset) -> None:
    """Raises DatasetError unless they are those that `target` promises."""
    name, y = dataset.name, dataset.y
    expected = dataset.num_nodes if dataset.per_node else dataset.num_graphs
    noun = "nodes" if dataset.per_node else "graphs"
    if y.size(0) != expected:
        raise DatasetError(f"{name} has {y.size(0)} targets, but {expected} {noun}")
    if dataset.target == "class":
        wrong = (y < -1) | (y >= dataset.num_outputs)
        allowed = f"the classes are 0 to {dataset.num_outputs - 1}, or -1 for none"
    elif dataset.target == "labels":
        wrong = ((y != 0) & (y != 1) & ~y.isnan()).any(1)
        allowed = "labels are 0, 1, or NaN where one is missing"
    else:
        wrong = ~torch.isfinite(y).all(1)
        allowed = "targets to regress must be finite"
    if bool(wrong.any()):
        row = _first(wrong)
        place = _place("node", dataset.graph_ptr, row) if dataset.per_node else f"graph {row}"
        raise DatasetError(f"{name}: the target of {place} is {y[row].tolist()}; {allowed}")


def _first(wrong: Tensor) -> int:
    return int(wrong.nonzero()[0])


def _owners(ptr: Tensor, rows: Tensor) -> Tensor:
    """The graphs that rows of all nodes or edges belong to."""
    return torch.searchsorted(ptr, rows, right=True) - 1


def _place(noun: str, ptr: Tensor, row: int) -> str:
    graph = int(_owners(ptr, ptr.new_tensor(row)))
    return f"{noun} {row - int(ptr[graph])} of graph {graph}"
