"""Facts of many graphs for `gnnbench datasets info`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from gnnbench.results.schema import Record

if TYPE_CHECKING:
    from torch import Tensor

    from gnnbench.datasets import GraphsDataset

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


class Spread(Record):
    """A count per graph."""

    total: int
    mean: float
    quantiles: dict[str, int] = Field(description="at shares of the graphs: '0.5' is the median")


class GraphsInfo(Record):
    """Many graphs, after the options of their configuration were applied."""

    name: str
    made_up: list[str] = Field(description="what is not real: graphs, features, labels, split")
    notes: list[str]
    graphs: int
    nodes: Spread
    edges: Spread = Field(description="directed: an undirected edge counts twice")
    edgeless_graphs: int
    degree_mean: float = Field(description="in-edges per node")
    degree_max: int = Field(description="most in-edges of a node")
    features: int
    categories: bool = Field(description="features are categories that an encoder embeds")
    edge_features: int
    target: Literal["class", "labels", "value"]
    per_node: bool = Field(description="targets are of nodes, not of whole graphs")
    outputs: int = Field(description="classes, or labels, or values")
    class_counts: list[int] = Field(description="graphs or nodes of each class or with each label")
    missing_targets: int
    train: int = Field(description="graphs")
    val: int
    test: int
    metric: str
    edge_index_bytes: int
    feature_bytes: int


def info(dataset: GraphsDataset) -> GraphsInfo:
    """Count everything there is to know about `dataset`."""
    first = dataset.graph_ptr[:-1].repeat_interleave(dataset.edge_ptr.diff())
    degree = (first + dataset.edge_index[1]).bincount(minlength=dataset.num_nodes)
    y = dataset.y
    if dataset.target == "class":
        counts, missing = y[y >= 0].bincount(minlength=dataset.num_outputs).tolist(), int((y < 0).sum())
    else:
        counts = (y == 1).sum(0).tolist() if dataset.target == "labels" else []
        missing = int(y.isnan().sum())
    edge_attr = dataset.edge_attr
    return GraphsInfo(
        name=dataset.label,
        made_up=dataset.made_up,
        notes=dataset.notes,
        graphs=dataset.num_graphs,
        nodes=_spread(dataset.graph_ptr),
        edges=_spread(dataset.edge_ptr),
        edgeless_graphs=int((dataset.edge_ptr.diff() == 0).sum()),
        degree_mean=dataset.num_edges / dataset.num_nodes,
        degree_max=int(degree.max()),
        features=dataset.x.size(1),
        categories=bool(dataset.encoder),
        edge_features=0 if edge_attr is None else edge_attr.size(1),
        target=dataset.target,
        per_node=dataset.per_node,
        outputs=dataset.num_outputs,
        class_counts=counts,
        missing_targets=missing,
        **{part: len(ids) for part, ids in dataset.parts.items()},
        metric=dataset.metric,
        edge_index_bytes=dataset.edge_index.nbytes,
        feature_bytes=dataset.x.nbytes + (0 if edge_attr is None else edge_attr.nbytes),
    )


def _spread(ptr: Tensor) -> Spread:
    import numpy as np

    counts = ptr.diff().numpy()
    quantiles = np.quantile(counts, QUANTILES, method="lower")
    return Spread(
        total=int(counts.sum()),
        mean=float(counts.mean()),
        quantiles={f"{share:g}": int(value) for share, value in zip(QUANTILES, quantiles, strict=True)},
    )
