"""Shapes of the layers of all models in `configs`, which ops that take no graph are benchmarked on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch.nn import BatchNorm1d

import gnnbench
from gnnbench import config, models, registry

ROWS = 1 << 18  # at most; further ones are as fast
CONFIGS = Path(gnnbench.__file__).parent / "configs"
# Nodes, of sets of graphs those of one on average; features, 0 where they are embedded; and classes.
SIZES: dict[str, tuple[float, int, int]] = {
    "cora": (2_708, 1_433, 7),
    "citeseer": (3_327, 3_703, 6),
    "pubmed": (19_717, 500, 3),
    "reddit": (232_965, 602, 41),
    "ogbn-arxiv": (169_343, 128, 40),
    "ogbn-products": (2_449_029, 100, 47),
    "ogbn-proteins": (132_534, 8, 112),
    "ogbl-collab": (235_868, 128, 1),
    "ogbl-ddi": (4_267, 256, 1),
    "ogbl-ppa": (576_289, 58, 1),
    "ogbl-citation2": (2_927_963, 128, 1),
    "ogbg-molhiv": (25.5, 0, 1),
    "cluster": (117.2, 7, 6),
    "pattern": (118.9, 3, 2),
    "mutag": (17.9, 7, 2),
    "proteins": (39.1, 3, 2),
}


# Op -> the sizes of a layer beside its rows; None of one that it does not compute.
LAYERS: dict[str, Callable[[Any], tuple[int, ...] | None]] = {
    "linear": lambda layer: layer.weight.shape[::-1] if type(layer).__name__ == "Linear" else None,
    "batch_norm": lambda layer: (layer.num_features,) if isinstance(layer, BatchNorm1d) else None,
    "dropout": lambda layer: layer.weight.shape[1:] if type(layer).__name__ == "Linear" else None,  # of inputs
}


def of_configurations(op: str) -> list[str]:
    """Shapes such as "820x300x300" of the layers that an op computes in an epoch of any configuration, ascending.

    Of a step on sampled neighbourhoods, rows are counted as if no node were drawn twice, up to all nodes.
    """
    found = {(rows, *sizes) for path in CONFIGS.glob("*.yaml") for rows, sizes in _layers(config.load(path), op)}
    return ["x".join(map(str, shape)) for shape in sorted(found, key=lambda shape: (prod(shape), shape))]


def _layers(run: config.Run, op: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    dataset, batch = run.dataset, run.batch
    if run.model.name == "conv":  # whose layers may be within messages, over as many edges as a chunk has
        return
    if hasattr(registry.find("models", run.model.name), "typed"):  # whose layers each have the nodes of a type
        return
    nodes, features, classes = SIZES[(getattr(dataset, "preset", None) or dataset.name).lower()]
    with torch.device("meta"):
        hidden = run.model.hidden
        links = models.Links(int(nodes)) if batch.links else None
        edges = 0 if features else hidden
        model = models.build(run.model, features or hidden, classes, edge_channels=edges, links=links)
    for path, layer in model.named_modules():
        if sizes := LAYERS[op](layer):
            rows = nodes * getattr(dataset, "scale", 1.0)
            if batch.kind == "graphs":
                rows = batch.size * (1 if path.startswith("head") else nodes)
            elif batch.kind == "neighbors":
                hops = len(batch.fanouts) - int(path.split(".")[1])
                rows = min(nodes, batch.size * prod(1 + fanout for fanout in batch.fanouts[:hops]))
            elif path.startswith("decoder"):
                rows = batch.size * (1 + batch.negatives)
            yield min(round(rows), ROWS), (*sizes,)
