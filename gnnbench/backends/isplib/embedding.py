"""Sums of embeddings, by `cython_kernels/embedding.pyx`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels, computes
from gnnbench.backends.isplib.workspace import in_huge_pages
from gnnbench.ops.layers import check_categories

native = _compiled.load("embedding")


class EmbeddingKernels(BaseKernels):
    """Rows of all tables are summed where they are, so that no tensor of a single table's rows is made."""

    def embedding_sum(self, table: Tensor, categories: Tensor, starts: Tensor) -> Tensor:
        if not computes(table) or not table.numel():
            return super().embedding_sum(table, categories, starts)
        out = in_huge_pages(table.new_empty(len(categories), table.size(1)))
        self._look_up(native.sum, categories, starts, table.size(1), table=table.contiguous(), out=out)
        return out

    def embedding_sum_backward(self, grad_out: Tensor, categories: Tensor, starts: Tensor) -> Tensor:
        if not computes(grad_out):
            return super().embedding_sum_backward(grad_out, categories, starts)
        grad_table, width = grad_out.new_zeros(int(starts[-1]), grad_out.size(1)), grad_out.size(1)
        tensors = {"grad_out": grad_out.contiguous(), "grad_table": grad_table}
        self._look_up(native.add, categories, starts, width, **tensors)
        return grad_table

    def _look_up(
        self, kernel: Callable[..., None], categories: Tensor, starts: Tensor, width: int, **tensors: Tensor
    ) -> None:
        """Run `kernel`; raise DatasetError where it met a category that its table lacks."""
        lacking, (rows, columns) = torch.zeros(1, dtype=torch.int64), categories.shape
        sizes = {"rows": rows, "columns": columns, "width": width}
        given = {"categories": categories.contiguous(), "starts": starts, "lacking": lacking}
        kernel(self.isa, self.threads, **given, **sizes, **tensors)
        if lacking:
            check_categories(categories, starts)
