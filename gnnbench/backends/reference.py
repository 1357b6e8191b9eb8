"""The op specification in plain torch, bound like every accelerated backend: slow, and right by inspection."""

from __future__ import annotations

import torch

from gnnbench import convs
from gnnbench.backends import base
from gnnbench.datasets import NodeDataset
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels


class Backend(base.Backend):
    """Untouched PyG models whose convs run on `ops.Kernels`."""

    name = "reference"
    anywhere = True
    takes_rewrites = True
    kernels = Kernels

    def prepare(self, model: torch.nn.Module, dataset: NodeDataset) -> base.Prepared:
        bindings = convs.bind(
            model,
            Kernels(),
            transform_first=self.config.transform_first,
            fold_norm=self.config.fold_norm,
            keep_aggregation=self.config.keep_aggregation,
        )
        graph = Graph.from_edge_index(dataset.edge_index.to(self.device), dataset.num_nodes)
        convs.warm(model, graph, dataset.x.to(self.device))
        return base.Prepared(graph, bindings)
