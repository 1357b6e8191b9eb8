"""Sums of embeddings, by `cython_kernels/embedding.pyx`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels, computes
from gnnbench.backends.isplib.workspace import in_huge_pages
from gnnbench.ops.kernels import check_categories

native = _compiled.load("embedding")


class EmbeddingKernels(BaseKernels):
    """Rows of all tables are summed where they are, so that no tensor of a single table's rows is made."""

    def embedding_sum(self, table: Tensor, categories: Tensor, starts: Tensor) -> Tensor:
        if not computes(table) or not table.numel():
            return super().embedding_sum(table, categories, starts)
        out = in_huge_pages(table.new_empty(len(categories), table.size(1)))
        return self._looked_up(native.sum, table.contiguous(), out, categories.contiguous(), starts)

    def embedding_sum_backward(self, grad_out: Tensor, categories: Tensor, starts: Tensor) -> Tensor:
        if not computes(grad_out):
            return super().embedding_sum_backward(grad_out, categories, starts)
        grad_table = grad_out.new_zeros(int(starts[-1]), grad_out.size(1))
        return self._looked_up(native.add, grad_out.contiguous(), grad_table, categories.contiguous(), starts)

    def _looked_up(
        self, kernel: Callable[..., None], x: Tensor, out: Tensor, categories: Tensor, starts: Tensor
    ) -> Tensor:
        """What `kernel` makes of x; raises DatasetError where it met a category that its table lacks."""
        lacking = torch.zeros(1, dtype=torch.int64)
        tensors, sizes = (x, out, categories, starts, lacking), (*categories.shape, x.size(1))
        kernel(x.dtype == torch.float64, self.isa, self.threads, *tensors, *sizes)
        if lacking:
            check_categories(categories, starts)
        return out
