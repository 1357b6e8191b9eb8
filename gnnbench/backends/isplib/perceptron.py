"""Perceptrons, by `cython_kernels/perceptron.pyx`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels, computes

native = _compiled.load("perceptron")

CHUNKS, CHUNK_ROWS = 64, 512  # at most so many pieces of the rows, for threads, of at least so many rows
MOST_INPUTS = 16  # beyond which products of whole matrices are faster
LANES = 16  # numbers of the longest vectors, of which rows of weights are whole ones


class PerceptronKernels(BaseKernels):
    """Hidden layers in registers, which the backward computes again."""

    def perceptron(self, x: Tensor, weights: Tensor) -> Tensor:
        if not _fits(x, weights):
            return super().perceptron(x, weights)
        out = x.new_empty(len(x))
        native.forward(self.isa, self.threads, **_fields(x, weights), out=out)
        return out

    def perceptron_backward(self, grad_out: Tensor, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        if not _fits(x, weights):
            return super().perceptron_backward(grad_out, x, weights)
        fields, grad_x = _fields(x, weights), torch.empty_like(x)
        partial = x.new_empty(fields["chunks"], *fields["weights"].shape)
        given = {"grad_out": grad_out, "grad_x": grad_x, "partial": partial}
        native.backward(self.isa, self.threads, **fields, **given)
        return grad_x, partial.sum(0)[:, : weights.size(1)]


def _fits(x: Tensor, weights: Tensor) -> bool:
    return computes(x, weights) and 0 < x.size(1) <= MOST_INPUTS


def _fields(x: Tensor, weights: Tensor) -> dict[str, Any]:
    weights = F.pad(weights, (0, -weights.size(1) % LANES))  # numbers that are zero, as are their gradients
    rows, ins = x.shape
    chunks = max(1, min(CHUNKS, rows // CHUNK_ROWS))
    return {"x": x, "weights": weights, "rows": rows, "ins": ins, "width": weights.size(1), "chunks": chunks}
