"""Vanilla PyG on a plain `edge_index`, with nothing of ours in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gnnbench.backends import base

if TYPE_CHECKING:
    from gnnbench.datasets import NodeDataset


class Backend(base.EdgeIndexBackend):
    """PyG as its examples use it."""

    name = "pyg"
    anywhere = True

    def prepare(self, model: torch.nn.Module, dataset: NodeDataset) -> base.Prepared:
        return base.Prepared(dataset.edge_index.to(self.device), [])
