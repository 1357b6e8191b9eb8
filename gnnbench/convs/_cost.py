"""Prices of a conv with and without a Graph, by which the drop-in decides whether to build one.

Prices were measured on an Intel Xeon with AVX-512, on random graphs of 30 to 10,000 edges, few to a node, where we
gain least: about the least that 16 and 64 channels saved. Graphs beyond the caches save much more. On an AMD EPYC
(Zen 3), builds for sums took 0.8 to 2 times as long, so that the prices stand for both, as they are.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Price(NamedTuple):
    """Nanoseconds: what a Graph costs once, and what each call then saves."""

    build: float
    saved: float


class Rates(NamedTuple):
    """Nanoseconds on one core: what a Graph costs, and what PyG takes longer than we with it."""

    build: int
    build_edge: int  # for each edge
    call: int
    edge: float  # for each edge and head
    value: float  # for each channel of all heads of an edge
    row: int = 0  # for each node and head

    def price(self, edges: int, values: int, heads: int = 1, rows: int = 0) -> Price:
        """Price a call on `rows` nodes, for each of whose `edges` PyG handles `values` numbers in `heads`."""
        build, build_edge, call, edge, value, row = self
        saved = call + edges * (heads * edge + values * value) + rows * heads * row
        return Price(build + edges * build_edge, saved)


class Cost(NamedTuple):
    """The rates of a conv without and with a backward, which needs the transpose."""

    inference: Rates
    training: Rates
    # Whether the features are gathered as the conv is given them, and transformed later; then there is a backward
    # only if these need a gradient. Otherwise all heads of its output are gathered.
    gathers_input: bool = False

    def price(self, x: Tensor, edges: int) -> Price:
        """Price a call that gathers x, and has a backward where this needs a gradient."""
        trained = x.requires_grad and torch.is_grad_enabled()
        return (self.training if trained else self.inference).price(edges, x.size(-1))


SUM = Cost(Rates(110_000, 35, -65_000, 12, 0.45), Rates(220_000, 50, -110_000, 25, 1.0), gathers_input=True)
# Of a sparse matrix with features, which PyG transposes in every backward.
PRODUCT = Cost(Rates(0, 0, 0, 0, 0), Rates(220_000, 50, -110_000, 60, 0), gathers_input=True)
