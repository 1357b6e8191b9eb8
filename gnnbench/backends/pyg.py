"""Vanilla PyG on a plain `edge_index`, with nothing of ours in between."""

from __future__ import annotations

from gnnbench.backends import base


class Backend(base.EdgeIndexBackend):
    """PyG as its examples use it."""

    name = "pyg"
    anywhere = True
