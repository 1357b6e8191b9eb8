"""Pairs of nodes that are no edges, by `cython_kernels/negatives.pyx`."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels
from gnnbench.graph.layout import signed

native = _compiled.load("negatives")


class NegativesKernels(BaseKernels):
    """Draws of pairs that are not in a matrix."""

    def draw_pairs(
        self, rowptr: Tensor, col: Tensor, num_cols: int, rows: Tensor | None, count: int, seed: int
    ) -> Tensor:
        if not rowptr.is_cpu:
            return super().draw_pairs(rowptr, col, num_cols, rows, count, seed)
        out = torch.empty(2, count, dtype=torch.int64)
        sizes = {"rows": rowptr.numel() - 1, "cols": num_cols, "count": count, "seed": signed(seed)}
        native.draw(self.threads, rowptr=rowptr, col=col, row=rows, out=out, **sizes)
        return out
