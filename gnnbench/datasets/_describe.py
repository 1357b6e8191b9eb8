"""Listing of the datasets on offer for `gnnbench datasets`, and everything about one of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from gnnbench import datasets
from gnnbench.results.schema import Record

if TYPE_CHECKING:
    from torch import Tensor

    from gnnbench.datasets import AnyDataset, NodeDataset, Roots
    from gnnbench.datasets._describe_graphs import GraphsInfo

QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


class OfferRecord(Record):
    """A dataset on offer; counts are None where only loading would tell."""

    spec: str = Field(description="what --dataset takes")
    source: str
    graphs: int | None
    nodes: int | None = Field(description="of all graphs")
    edges: int | None = Field(description="directed: an undirected edge counts twice")
    on_disk: bool
    where: Path | None = Field(description="the folder or file, where on disk")


class DegreeBin(Record):
    """Nodes whose in-degree is from `low` to `high`, both included."""

    low: int
    high: int
    nodes: int


class DatasetInfo(Record):
    """One dataset, after the options of its configuration were applied."""

    name: str
    made_up: list[str] = Field(description="what is not real: graph, features, labels, split")
    notes: list[str]
    nodes: int
    edges: int = Field(description="directed: an undirected edge counts twice")
    degree_mean: float = Field(description="in-edges per node")
    degree_quantiles: dict[str, int] = Field(description="in-degree at shares of the nodes: '0.5' is the median")
    degree_histogram: list[DegreeBin] = Field(description="0, then bins that double: 1, 2-3, 4-7, ...")
    max_out_degree: int
    symmetric: bool = Field(description="every edge has its reverse")
    self_loops: int
    duplicate_edges: int = Field(description="edges that repeat an earlier one")
    isolated_nodes: int = Field(description="with neither in- nor out-edge; a loop counts as both")
    features: int
    feature_density: float = Field(description="share of features that are not zero")
    classes: int
    multilabel: bool
    class_counts: list[int] = Field(description="nodes of each class, or with each label")
    unlabelled: int
    train: int
    val: int
    test: int
    metric: str
    edge_index_bytes: int
    feature_bytes: int


def offers(where: Roots) -> list[OfferRecord]:
    """Every dataset with a short name, and graph files found in the data root."""
    return [
        OfferRecord(source=source, on_disk=offer.where is not None, **dataclasses.asdict(offer))
        for source, offer in datasets.listing(where)
    ]


def info(dataset: AnyDataset) -> DatasetInfo | GraphsInfo:
    """Count everything there is to know about `dataset`."""
    from gnnbench.datasets import _describe_graphs

    if isinstance(dataset, datasets.GraphsDataset):
        return _describe_graphs.info(dataset)
    return of_graph(dataset)


def of_graph(dataset: NodeDataset) -> DatasetInfo:
    """Describe one graph; sorts its edges, so large ones take a while."""
    import numpy as np

    src, dst = dataset.edge_index
    nodes = dataset.num_nodes
    in_degree, out_degree = dst.bincount(minlength=nodes), src.bincount(minlength=nodes)
    symmetric, duplicates = _compare_with_reverse(src, dst, nodes)
    y = dataset.y
    counts = y.sum(0) if dataset.multilabel else y[y >= 0].bincount(minlength=dataset.num_classes)
    quantiles = np.quantile(in_degree.numpy(), QUANTILES, method="lower")
    return DatasetInfo(
        name=dataset.label,
        made_up=dataset.made_up,
        notes=dataset.notes,
        nodes=nodes,
        edges=src.numel(),
        degree_mean=src.numel() / nodes,
        degree_quantiles={f"{share:g}": int(value) for share, value in zip(QUANTILES, quantiles, strict=True)},
        degree_histogram=_histogram(in_degree),
        max_out_degree=int(out_degree.max()),
        symmetric=symmetric,
        self_loops=int((src == dst).sum()),
        duplicate_edges=duplicates,
        isolated_nodes=int(((in_degree == 0) & (out_degree == 0)).sum()),
        features=dataset.x.size(1),
        feature_density=int(dataset.x.count_nonzero()) / max(1, dataset.x.numel()),
        classes=dataset.num_classes,
        multilabel=dataset.multilabel,
        class_counts=[int(count) for count in counts],
        unlabelled=0 if dataset.multilabel else int((y < 0).sum()),
        train=int(dataset.train_mask.sum()),
        val=int(dataset.val_mask.sum()),
        test=int(dataset.test_mask.sum()),
        metric=dataset.metric,
        edge_index_bytes=dataset.edge_index.nbytes,
        feature_bytes=dataset.x.nbytes,
    )


def _compare_with_reverse(src: Tensor, dst: Tensor, nodes: int) -> tuple[bool, int]:
    """Return whether all edges together equal their reverses, and how many repeat another."""
    import numpy as np

    forward, reverse = (src * nodes + dst).numpy(), (dst * nodes + src).numpy()
    forward.sort()
    reverse.sort()
    return bool(np.array_equal(forward, reverse)), int((np.diff(forward) == 0).sum())


def _histogram(degree: Tensor) -> list[DegreeBin]:
    import numpy as np

    counts = np.bincount(np.frexp(degree.numpy().astype("float64"))[1])  # 0, then floor(log2) + 1
    bins = [DegreeBin(low=0, high=0, nodes=int(counts[0]))]
    bins += [DegreeBin(low=2 ** (e - 1), high=2**e - 1, nodes=int(counts[e])) for e in range(1, len(counts))]
    return bins
