"""The Long Range Graph Benchmark: superpixels to segment and peptides to describe (Dwivedi et al. 2022)."""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

from gnnbench.datasets import GraphsDataset, Roots, _names, _pyg
from gnnbench.datasets._graphs import GraphsConfig, Target
from gnnbench.datasets._pyg import Known


class Kind(NamedTuple):
    """Task and metric that a set asks for."""

    target: Target
    metric: str
    outputs: int
    per_node: bool
    stand_in: str


SIZES = {"PascalVOC-SP": 11_355, "COCO-SP": 123_286, "Peptides-func": 15_535, "Peptides-struct": 15_535}
KNOWN = {name.lower(): Known("LRGBDataset", {"name": name}, None, None, graphs) for name, graphs in SIZES.items()}
KINDS = {
    "pascalvoc-sp": Kind("class", "macro F1", 21, True, "synthetic:pascalvoc-sp:0.1"),
    "coco-sp": Kind("class", "macro F1", 81, True, "synthetic:coco-sp:0.01"),
    "peptides-func": Kind("labels", "ap", 10, False, "synthetic:mnist:0.02"),
    "peptides-struct": Kind("value", "negative MAE", 11, False, "synthetic:mnist:0.02"),
}
SPECS = list(KNOWN)


class Config(GraphsConfig):
    """Which set of graphs."""

    source: str = "lrgb"
    name: Literal["pascalvoc-sp", "coco-sp", "peptides-func", "peptides-struct"]


parse = partial(_names.lowered, KNOWN)
listing = partial(_pyg.offers, KNOWN)


def load(config: Config, where: Roots) -> GraphsDataset:
    """The three splits of `torch_geometric.datasets.LRGBDataset`, joined, with the paper's metrics.

    Those are macro F1 for superpixels, average precision for Peptides-func and the mean absolute error, here
    negative, for Peptides-struct. Peptides have OGB's categories as features of atoms and bonds.

    Raises:
        DatasetError: the raw files are missing or corrupt.
    """
    item, kind = KNOWN[config.name], KINDS[config.name]
    union, parts = _pyg.splits(item, where, kind.stand_in)
    return GraphsDataset(
        item.args["name"],
        **union.graphs(),
        y=union.targets.flatten().long() if kind.target == "class" else union.targets.float(),
        parts=parts,
        target=kind.target,
        num_outputs=kind.outputs,
        metric=kind.metric,
        per_node=kind.per_node,
        encoder="" if union.x.is_floating_point() else "ogb",
    )
