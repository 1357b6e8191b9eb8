"""Benchmarks of node and graph classification on many graphs (Dwivedi et al. 2020)."""

from __future__ import annotations

from functools import partial
from typing import Literal

from gnnbench.datasets import GraphsDataset, Roots, _names, _pyg
from gnnbench.datasets._graphs import GraphsConfig
from gnnbench.datasets._pyg import Known

KNOWN = {
    name.lower(): Known("GNNBenchmarkDataset", {"name": name}, None, None, graphs)
    for name, graphs in {"PATTERN": 14_000, "CLUSTER": 12_000, "MNIST": 70_000, "CIFAR10": 60_000}.items()
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
    union, parts = _pyg.splits(item, where, f"synthetic:{config.name}:0.1", with_positions=True)
    y = union.targets.flatten().long()
    return GraphsDataset(
        item.args["name"],
        **union.graphs(),
        y=y,
        parts=parts,
        target="class",
        num_outputs=int(y.max()) + 1,
        per_node=config.name in PER_NODE,
    )
