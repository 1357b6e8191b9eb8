"""Scores of heads, by `cython_kernels/heads.pyx`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels, computes
from gnnbench.backends.isplib.workspace import in_huge_pages

native = _compiled.load("heads")

CHUNKS, CHUNK_ROWS = 64, 64  # at most so many pieces of the rows, for threads, of at least so many rows


class HeadKernels(BaseKernels):
    """All scores in one pass over the rows, and no tensor of products."""

    def head_scores(self, x: Tensor, att: Tensor) -> Tensor:
        if not computes(x, att):
            return super().head_scores(x, att)
        out = x.new_empty(len(att), *x.shape[:2])
        native.forward(self.isa, self.threads, **_fields(x, att), out=out)
        return out

    def head_scores_backward(self, grad_out: Tensor, x: Tensor, att: Tensor) -> tuple[Tensor, Tensor]:
        if not computes(grad_out, x, att):
            return super().head_scores_backward(grad_out, x, att)
        fields, grads = _fields(x, att), (in_huge_pages(torch.empty_like(x)), torch.empty_like(att))
        partial = x.new_empty(fields["chunks"], *att.shape)
        given = {"grad_out": grad_out, "partial": partial}
        native.backward(self.isa, self.threads, **fields, **given, grad_x=grads[0], grad_att=grads[1])
        return grads


def _fields(x: Tensor, att: Tensor) -> dict[str, Any]:
    rows, heads, width = x.shape
    chunks = max(1, min(CHUNKS, rows // CHUNK_ROWS))
    return {"rows": rows, "heads": heads, "width": width, "count": len(att), "chunks": chunks, "x": x, "att": att}
