"""Outputs of a graph of several types, a layer at a time: nodes of a type in blocks, with all neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.backends.base import Backend
from gnnbench.datasets import TypedDataset
from gnnbench.datasets._typed import Relation
from gnnbench.training import layerwise
from gnnbench.training.batching.full import typed_adjacency

CPU = torch.device("cpu")


def neighbors(dataset: TypedDataset) -> isplib.TypedNeighbors:
    """The in-edges of every relation in rows, to draw from."""
    rows = {}
    for relation, edges in dataset.relations.items():
        graph = edges.graph(CPU, isplib.IsplibKernels())
        rows[relation] = isplib.Rows(graph.rowptr, graph.col, num_cols=edges.num_cols)
    return isplib.TypedNeighbors(dataset.nodes, rows)


class TypedLayerwise:
    """Inference of a model that is bound on its backend, on neighbourhoods of one hop.

    Outputs are those of the whole graph but for rounding, as sums are over the edges of a block.

    Attributes:
        way: how nodes are gone over, in words.
    """

    def __init__(self, model: Any, dataset: TypedDataset, backend: Backend) -> None:
        self.model, self.backend, self.layout = model, backend, backend.layout()
        self.x, self.target, self.relations = dataset.x, dataset.target, [*dataset.relations]
        self.neighbors = neighbors(dataset)
        width = max(layerwise.widest(model, x) for x in self.x.values())
        self.mapped = layerwise.too_large(backend, layerwise.HELD * width * dataset.num_nodes)
        self.way = "batches of a type with all neighbours" + ", layers in mapped files" * self.mapped

    def __call__(self, block: int = 0, folder: Path | None = None, key: str = "") -> Tensor:
        """Outputs [n, C] of the classified type; arguments as of `Layerwise`."""
        with layerwise.place(self.mapped, folder) as own:
            rows = {
                kind: layerwise.Rows(len(x), None if own is None else own / kind, key)
                for kind, x in self.x.items()
            }
            return self._outputs(rows, block or layerwise.LOADED)

    def _outputs(self, rows: Mapping[str, layerwise.Rows], block: int) -> Tensor:
        stages = {kind: layerwise.Stages(own, block) for kind, own in rows.items()}
        for kind, stage in stages.items():
            stage.apply("input", partial(self._entered, kind))
        last = "input"
        for layer in range(len(self.model.convs)):
            is_last = layer == len(self.model.convs) - 1
            for kind in [self.target] if is_last else stages:
                if not rows[kind].complete(f"layer{layer}"):
                    given = {name: own.get(last)[0] for name, own in rows.items()}
                    stages[kind].apply(f"layer{layer}", partial(self._step, layer, kind, given))
            for own in rows.values():
                own.drop(last)
            last = f"layer{layer}"
        target = rows[self.target]
        stages[self.target].apply("output", lambda begin, end: self._left(target.get(last)[0][begin:end]))
        target.drop(last)
        return target.get("output")[0]

    def _entered(self, kind: str, begin: int, end: int) -> Tensor:
        own: Tensor = self.model.enter({kind: self.x[kind][begin:end].to(self.backend.device)})[kind]
        return own

    def _step(self, layer: int, kind: str, given: Mapping[str, Tensor], begin: int, end: int) -> Tensor:
        fanouts: dict[Relation, list[int]] = {each: [-1 if each[2] == kind else 0] for each in self.relations}
        sample = self.neighbors.sample({kind: torch.arange(begin, end)}, fanouts, 0)
        device = self.backend.device
        x = {name: given[name][node].to(device) for name, node in sample.node.items()}
        adj, edge_type = typed_adjacency(self.model, self.backend, self.layout, sample.sizes, sample.edges)
        out: Tensor = self.model.step(layer, x, adj, edge_type)[kind][: end - begin]
        return out

    def _left(self, x: Tensor) -> Tensor:
        out: Tensor = self.model.leave(x.to(self.backend.device))
        return out
