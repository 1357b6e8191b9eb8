"""Dropout of features, by `cython_kernels/dropout.pyx`."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels, computes
from gnnbench.backends.isplib.workspace import in_huge_pages
from gnnbench.ops.dropout import Dropout

native = _compiled.load("dropout")


class DropoutKernels(BaseKernels):
    """Dropout, of which nothing is kept."""

    def dropout(self, x: Tensor, dropout: Dropout) -> Tensor:
        if not computes(x):
            return super().dropout(x, dropout)
        out, (low, high) = in_huge_pages(torch.empty_like(x)), dropout.words()
        draw = {"first": dropout.first, "low": low, "high": high, "threshold": dropout.threshold}
        native.dropout(self.isa, self.threads, x=x, out=out, count=x.numel(), scale=dropout.scale, **draw)
        return out
