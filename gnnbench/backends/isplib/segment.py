"""Reductions over runs of rows, by `cython_kernels/segment.pyx`."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels, computes
from gnnbench.backends.isplib.workspace import in_huge_pages

native = _compiled.load("segment")


class SegmentKernels(BaseKernels):
    """Sums, means and extrema of edges that lie row by row."""

    def segment(self, rowptr: Tensor, x: Tensor, reduce: str) -> Tensor:
        if not computes(x):
            return super().segment(rowptr, x, reduce)
        out = torch.empty(len(rowptr) - 1, x.size(1), dtype=x.dtype)
        native.forward(self.isa, self.threads, **_fields(rowptr, x, reduce), x=x, out=out)
        return out

    def segment_backward(
        self, rowptr: Tensor, grad_out: Tensor, reduce: str, x: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        if not computes(grad_out):
            return super().segment_backward(rowptr, grad_out, reduce, x, out)
        grad_x = torch.empty(int(rowptr[-1]), grad_out.size(1), dtype=grad_out.dtype)
        fields = {**_fields(rowptr, grad_out, reduce), "x": x, "out": out, "grad_out": grad_out, "grad_x": grad_x}
        native.backward(self.isa, self.threads, **fields)
        return grad_x

    def gather_rows(
        self, rowptr: Tensor, col: Tensor, source: Tensor | None, destination: Tensor | None
    ) -> Tensor:
        given = [each for each in (source, destination) if each is not None]
        watched = torch.is_grad_enabled() and any(each.requires_grad for each in given)
        if watched or not computes(*given) or not (source is None or source.is_contiguous()):
            return super().gather_rows(rowptr, col, source, destination)
        shape, dtype = given[0].shape[1:], given[0].dtype
        out = in_huge_pages(torch.empty(len(col), *shape, dtype=dtype))
        destination = None if destination is None else destination.contiguous()
        sizes = {"rows": len(rowptr) - 1, "cols": 0 if source is None else len(source), "width": shape.numel()}
        fields = {"rowptr": rowptr, "col": col, "source": source, "destination": destination, "out": out}
        native.gather(self.isa, self.threads, **sizes, **fields)
        return out

    def add_rows(self, out: Tensor, index: Tensor, x: Tensor) -> None:
        if not computes(out, x):
            return super().add_rows(out, index, x)
        rows, width = out.shape
        native.add(self.isa, self.threads, rows=rows, edges=len(x), width=width, index=index, x=x, out=out)
        return None


def _fields(rowptr: Tensor, x: Tensor, reduce: str) -> dict[str, object]:
    sizes = {"rowptr": rowptr, "rows": len(rowptr) - 1, "width": x.size(1)}
    return {**sizes, "reduce": native.REDUCTIONS.index(reduce)}
