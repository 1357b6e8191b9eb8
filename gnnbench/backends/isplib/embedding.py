"""Sums of embeddings, by `cython_kernels/embedding.pyx`."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels
from gnnbench.backends.isplib.workspace import in_huge_pages
from gnnbench.ops.kernels import check_categories

native = _compiled.load("embedding")


class EmbeddingKernels(BaseKernels):
    """Rows of all tables are summed where they are, so that no tensor of a single table's rows is made."""

    def embedding_sum(self, table: Tensor, categories: Tensor, starts: Tensor) -> Tensor:
        if not self._computes(table) or not table.numel():
            return super().embedding_sum(table, categories, starts)
        table, categories = table.contiguous(), categories.contiguous()
        out = in_huge_pages(table.new_empty(len(categories), table.size(1)))
        tensors, sizes = (table, out, categories, starts), (*categories.shape, table.size(1))
        lacking = torch.zeros(1, dtype=torch.int64)
        native.sum(table.dtype == torch.float64, self.isa, self.threads, *tensors, lacking, *sizes)
        if lacking:
            check_categories(categories, starts)
        return out

    def embedding_sum_backward(self, grad_out: Tensor, categories: Tensor, starts: Tensor) -> Tensor:
        if not self._computes(grad_out):
            return super().embedding_sum_backward(grad_out, categories, starts)
        grad_out, categories = grad_out.contiguous(), categories.contiguous()
        grad_table = grad_out.new_zeros(int(starts[-1]), grad_out.size(1))
        tensors, sizes = (grad_out, grad_table, categories, starts), (*categories.shape, grad_out.size(1))
        lacking = torch.zeros(1, dtype=torch.int64)
        native.add(grad_out.dtype == torch.float64, self.isa, self.threads, *tensors, lacking, *sizes)
        if lacking:
            check_categories(categories, starts)
        return grad_table

    def _computes(self, x: Tensor) -> bool:
        return x.dtype in (torch.float32, torch.float64) and x.device.type == "cpu"
