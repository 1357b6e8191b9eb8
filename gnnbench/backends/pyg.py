"""Vanilla PyG on a plain `edge_index`, with nothing of ours in between."""

from __future__ import annotations

import torch

from gnnbench.backends import base


class Backend(base.EdgeIndexBackend):
    """PyG as its examples use it."""

    name = "pyg"
    anywhere = True

    def prepare(self, model: torch.nn.Module, dataset: base.Inputs) -> base.Prepared:
        return base.Prepared(dataset.edge_index.to(self.device), [])
