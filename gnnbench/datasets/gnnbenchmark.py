"""Benchmarks of node and graph classification on many graphs (Dwivedi et al. 2020)."""

from __future__ import annotations

from typing import Literal

from gnnbench.datasets import GraphsDataset, Roots, pyg
from gnnbench.datasets._kinds import GraphsConfig

KNOWN = {
    name.lower(): pyg.Known("GNNBenchmarkDataset", {"name": name}, graphs=graphs)
    for name, graphs in {"PATTERN": 14_000, "CLUSTER": 12_000, "MNIST": 70_000, "CIFAR10": 60_000}.items()
}


class Config(GraphsConfig):
    """Which set of graphs."""

    source: str = "gnnbenchmark"
    name: Literal["pattern", "cluster", "mnist", "cifar10"]


def load(config: Config, where: Roots) -> GraphsDataset:
    """The three splits of `torch_geometric.datasets.GNNBenchmarkDataset`, joined.

    Superpixels have their positions among their features, as in the paper. The metric is plain accuracy; for
    PATTERN and CLUSTER the paper reports the mean of the accuracies within each class.
    """
    stand_in = f"synthetic:{config.name}:0.1"
    return pyg.joined(KNOWN[config.name], where, stand_in, target="class", with_positions=True)
