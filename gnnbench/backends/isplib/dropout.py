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
        out, how = in_huge_pages(torch.empty_like(x)), (x.dtype == torch.float64, self.isa, self.threads)
        native.dropout(*how, dropout.scale, x, out, x.numel(), dropout.first, *dropout.words(), dropout.threshold)
        return out
