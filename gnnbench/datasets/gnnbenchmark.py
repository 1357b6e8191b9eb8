"""Benchmarks of node and graph classification on many graphs (Dwivedi et al. 2020)."""

from __future__ import annotations

from functools import partial
from typing import Literal

from gnnbench.datasets import GraphsDataset, Roots, _names, _prepare_graphs, _pyg, _union
from gnnbench.datasets._graphs import PARTS, GraphsConfig
from gnnbench.datasets._pyg import Known


def _known(name: str, graphs: int) -> Known:
    return Known("GNNBenchmarkDataset", {"name": name}, None, None, graphs)


KNOWN = {
    "pattern": _known("PATTERN", 14_000),
    "cluster": _known("CLUSTER", 12_000),
    "mnist": _known("MNIST", 70_000),
    "cifar10": _known("CIFAR10", 60_000),
}
SPECS = list(KNOWN)
PER_NODE = ("pattern", "cluster")


class Config(GraphsConfig):
    """Which set of graphs."""

    source: str = "gnnbenchmark"
    name: Literal["pattern", "cluster", "mnist", "cifar10"]


parse = partial(_names.lowered, KNOWN)
listing = partial(_pyg.offers, KNOWN)


def load(config: Config, where: Roots) -> GraphsDataset:
    """The three splits of `torch_geometric.datasets.GNNBenchmarkDataset`, joined.

    Superpixels have their positions among their features, as in the paper. The metric is plain accuracy; for
    PATTERN and CLUSTER the paper reports the mean of the accuracies within each class.

    Raises:
        DatasetError: the raw files are missing or corrupt.
    """
    item = KNOWN[config.name]
    name = item.args["name"]
    splits = [{"split": part} for part in PARTS]
    stand_in = f"synthetic:{config.name}:0.1"
    datasets = _pyg.opened(name, item.dataset_class, item.args, where, stand_in=stand_in, variants=splits)
    unions = [_union.of(name, dataset, with_positions=True) for dataset in datasets]
    union, parts = _union.joined(name, dict(zip(PARTS, unions, strict=True)))
    y = union.targets.flatten().long()
    classes = int(y.max()) + 1
    return GraphsDataset(
        name,
        **union.graphs(),
        y=y,
        parts=parts,
        target="class",
        num_outputs=classes,
        **_prepare_graphs.plain_metric("class", classes),
        per_node=config.name in PER_NODE,
    )
