"""Vanilla PyG on a plain `edge_index` under `torch.compile`."""

from __future__ import annotations

import torch

from gnnbench.backends import base
from gnnbench.results.schema import Binding


class Backend(base.EdgeIndexBackend):
    """PyG as its documentation compiles full-batch training: the first epoch compiles, with static shapes."""

    name = "pyg-compile"
    anywhere = True

    def prepare(self, model: torch.nn.Module, dataset: base.Inputs) -> base.Prepared:
        model.compile(dynamic=False)
        return base.Prepared(dataset.edge_index.to(self.device), [])

    def bind(self, model: torch.nn.Module) -> list[Binding]:
        model.compile(dynamic=True)
        return super().bind(model)
