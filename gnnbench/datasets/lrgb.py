"""The Long Range Graph Benchmark: superpixels to segment and peptides to describe (Dwivedi et al. 2022)."""

from __future__ import annotations

from typing import Any, Literal

from gnnbench.datasets import GraphsDataset, Roots, pyg
from gnnbench.datasets._kinds import GraphsConfig

SIZES = {"PascalVOC-SP": 11_355, "COCO-SP": 123_286, "Peptides-func": 15_535, "Peptides-struct": 15_535}
KNOWN = {name.lower(): pyg.Known("LRGBDataset", {"name": name}, graphs=graphs) for name, graphs in SIZES.items()}
TASKS: dict[str, dict[str, Any]] = {
    "pascalvoc-sp": {"target": "class", "metric": "macro F1", "num_outputs": 21},
    "coco-sp": {"target": "class", "metric": "macro F1", "num_outputs": 81},
    "peptides-func": {"target": "labels", "metric": "ap", "num_outputs": 10},
    "peptides-struct": {"target": "value", "metric": "negative MAE", "num_outputs": 11},
}
STAND_INS = {"pascalvoc-sp": "synthetic:pascalvoc-sp:0.1", "coco-sp": "synthetic:coco-sp:0.01"}


class Config(GraphsConfig):
    """Which set of graphs."""

    source: str = "lrgb"
    name: Literal["pascalvoc-sp", "coco-sp", "peptides-func", "peptides-struct"]


def load(config: Config, where: Roots) -> GraphsDataset:
    """The three splits of `torch_geometric.datasets.LRGBDataset`, joined, with the paper's metrics.

    Those are macro F1 for superpixels, average precision for Peptides-func and the mean absolute error, here
    negative, for Peptides-struct. Peptides have OGB's categories as features of atoms and bonds.
    """
    stand_in = STAND_INS.get(config.name, "synthetic:mnist:0.02")
    graphs = pyg.joined(KNOWN[config.name], where, stand_in, **TASKS[config.name])
    graphs.encoder = "" if graphs.x.is_floating_point() else "ogb"
    return graphs
