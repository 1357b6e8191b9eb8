"""Everything about one dataset, for `gnnbench datasets info`."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from gnnbench.datasets import AnyDataset, GraphsDataset, LinksDataset, TypedDataset
from gnnbench.datasets._kinds import SPLITS
from gnnbench.results.schema import Record, SyntheticParts

QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


class NodeType(Record):
    """The nodes of one type."""

    nodes: int
    features: int = Field(description="or width of the vectors that are trained in their place")
    trained: bool = Field(description="has such vectors")


class DatasetInfo(Record):
    """One dataset, after the options of its configuration were applied; counts are over all of its graphs."""

    name: str
    synthetic_parts: SyntheticParts
    notes: list[str]
    graphs: int
    nodes: int
    edges: int = Field(description="directed: an undirected edge counts twice")
    graph_nodes: dict[str, int] = Field(
        description="nodes of a graph at shares of the graphs: '0.5' is the median"
    )
    graph_edges: dict[str, int]
    degree_mean: float = Field(description="in-edges per node")
    degree_quantiles: dict[str, int] = Field(description="in-degree at shares of the nodes")
    max_out_degree: int
    symmetric: bool = Field(description="every edge has its reverse")
    self_loops: int
    duplicate_edges: int = Field(description="edges that repeat an earlier one")
    isolated_nodes: int = Field(description="with neither in- nor out-edge; a loop counts as both")
    features: int
    categories: bool = Field(False, description="features are categories that an encoder embeds")
    feature_density: float = Field(description="share of features that are not zero")
    edge_features: int = 0
    target: Literal["class", "labels", "value", "link"]
    per_node: bool = Field(True, description="targets are of nodes, not of whole graphs")
    outputs: int = Field(description="classes, labels or values; all links")
    class_counts: list[int] = Field([], description="targets of each class, or with each label")
    missing_targets: int = 0
    relations: int = Field(1, description="types of links")
    node_types: dict[str, NodeType] = Field({}, description="of a graph of several types")
    edge_types: dict[str, int] = Field({}, description="edges of each of its relations")
    target_type: str = Field("", description="type of the nodes that have targets")
    negatives: int = Field(0, description="pairs that test links are told from, or destinations of each")
    train: int = Field(description="nodes; graphs where there are many; links")
    val: int
    test: int
    metric: str
    edge_index_bytes: int
    embedding_bytes: int = Field(0, description="of vectors that are trained in place of features")
    feature_bytes: int


def info(dataset: AnyDataset) -> DatasetInfo:
    """Count everything there is to know about `dataset`; sorts its edges, so that large ones take a while."""
    graph = dataset.as_nodes() if isinstance(dataset, LinksDataset | TypedDataset) else dataset
    (src, dst), nodes = graph.edge_index, graph.num_nodes
    node_counts, edge_counts = torch.tensor([nodes]), torch.tensor([len(src)])
    if isinstance(graph, GraphsDataset):
        node_counts, edge_counts, first = graph.graph_ptr.diff(), graph.edge_ptr.diff(), graph.starts()
        src, dst = src + first, dst + first
    in_degree, out_degree = dst.bincount(minlength=nodes), src.bincount(minlength=nodes)
    symmetric, duplicates = _compare_with_reverse(src, dst, nodes)
    facts: dict[str, Any] = {
        "name": dataset.label,
        "synthetic_parts": dataset.synthetic_parts,
        "notes": dataset.notes,
        "graphs": len(node_counts),
        "nodes": nodes,
        "edges": len(src),
        "graph_nodes": _quantiles(node_counts),
        "graph_edges": _quantiles(edge_counts),
        "degree_mean": len(src) / nodes,
        "degree_quantiles": _quantiles(in_degree),
        "max_out_degree": int(out_degree.max()),
        "symmetric": symmetric,
        "self_loops": int((src == dst).sum()),
        "duplicate_edges": duplicates,
        "isolated_nodes": int(((in_degree == 0) & (out_degree == 0)).sum()),
        "features": graph.x.size(1),
        "feature_density": int(graph.x.count_nonzero()) / max(1, graph.x.numel()),
        "metric": dataset.metric,
        "edge_index_bytes": graph.edge_index.nbytes,
        "feature_bytes": graph.x.nbytes,
    }
    if isinstance(dataset, GraphsDataset):
        facts |= _of_graphs(dataset)
    elif isinstance(dataset, LinksDataset):
        facts |= _of_links(dataset)
    else:
        target = "labels" if dataset.multilabel else "class"
        facts |= _of_targets(dataset.y, target, dataset.num_classes)
        facts |= {split: int(getattr(dataset, f"{split}_mask").sum()) for split in SPLITS}
        facts |= _of_types(dataset) if isinstance(dataset, TypedDataset) else {}
    return DatasetInfo(**facts)


def _of_targets(y: Tensor, target: str, outputs: int) -> dict[str, Any]:
    if target == "class":
        counts, missing = y[y >= 0].bincount(minlength=outputs).tolist(), int((y < 0).sum())
    else:
        counts, missing = [] if target == "value" else (y == 1).sum(0).tolist(), int(y.isnan().sum())
    return {"target": target, "outputs": outputs, "class_counts": counts, "missing_targets": missing}


def _of_graphs(dataset: GraphsDataset) -> dict[str, Any]:
    facts = _of_targets(dataset.y, dataset.target, dataset.num_outputs)
    facts |= {"per_node": dataset.per_node, "categories": bool(dataset.encoder)}
    if (table := dataset.edge_attr) is not None:
        facts |= {"edge_features": table.size(1), "feature_bytes": dataset.x.nbytes + table.nbytes}
    return facts | {split: len(ids) for split, ids in dataset.splits.items()}


def _of_links(dataset: LinksDataset) -> dict[str, Any]:
    """Facts of links, in place of those of the nodes of their graph."""
    trained = {"feature_density": 0.0, "feature_bytes": 0} if dataset.embedding else {}
    return {
        **trained,
        "target": "link",
        "per_node": False,
        "outputs": sum(pairs.size(1) for pairs in dataset.positives.values()),
        "relations": dataset.num_relations,
        "negatives": dataset.negatives["test"].size(1),
        **{split: pairs.size(1) for split, pairs in dataset.positives.items()},
        "embedding_bytes": dataset.embedding_bytes,
    }


def _of_types(dataset: TypedDataset) -> dict[str, Any]:
    """Facts of a graph of several types, in place of those of all of them as one."""
    features = [x for x in dataset.x.values() if x.dim() == 2]
    numbers = sum(x.numel() for x in features)
    types = {
        kind: NodeType(nodes=len(x), features=dataset.widths[kind], trained=x.dim() == 1)
        for kind, x in dataset.x.items()
    }
    return {
        "features": dataset.widths[dataset.target],
        "feature_density": sum(int(x.count_nonzero()) for x in features) / max(1, numbers),
        "feature_bytes": 4 * numbers,
        "embedding_bytes": dataset.embedding_bytes,
        "node_types": types,
        "edge_types": {" ".join(each): edges.edge_index.size(1) for each, edges in dataset.relations.items()},
        "target_type": dataset.target,
    }


def _quantiles(counts: Tensor) -> dict[str, int]:
    values = np.quantile(counts.numpy(), QUANTILES, method="lower")
    return {f"{share:g}": int(value) for share, value in zip(QUANTILES, values, strict=True)}


def _compare_with_reverse(src: Tensor, dst: Tensor, nodes: int) -> tuple[bool, int]:
    """Return whether all edges together equal their reverses, and how many repeat another."""
    forward, reverse = (src * nodes + dst).numpy(), (dst * nodes + src).numpy()
    forward.sort()
    reverse.sort()
    return bool(np.array_equal(forward, reverse)), int((np.diff(forward) == 0).sum())
