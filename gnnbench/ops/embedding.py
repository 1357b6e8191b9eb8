"""Sums of embeddings: what encoders of several categories compute."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gnnbench.errors import UnsupportedOp
from gnnbench.ops import _custom
from gnnbench.ops._workload import Workload
from gnnbench.ops.kernels import Kernels


def embedding_sum(kernels: Kernels, tables: Sequence[Tensor], categories: Tensor) -> Tensor:
    """out[i] = sum over k of tables[k][categories[i, k]], in the order of the tables.

    Args:
        tables: K of [T_k, F], floating point and of one type.
        categories: [N, K] int64.

    Returns:
        [N, F], differentiable in the tables.

    Raises:
        UnsupportedOp: shapes or types do not fit.
        DatasetError: a category that its table lacks.
    """
    if not tables:
        raise UnsupportedOp("embedding_sum", ["there are no tables, expected at least one"])
    sizes = [0, *(len(table) for table in tables)]
    starts = torch.tensor(sizes, device=categories.device).cumsum(0)
    out: Tensor = _sum(torch.cat([*tables]), categories, starts, kernels)
    return out


@_custom.op(
    "embedding_sum(Tensor table, Tensor categories, Tensor starts, str kernels) -> Tensor",
    fake=lambda table, categories, starts, kernels: _custom.like(table, categories.size(0), table.size(1)),
)
def _sum(table: Tensor, categories: Tensor, starts: Tensor, kernels: Kernels) -> Tensor:
    reasons = []
    if categories.dim() != 2 or categories.size(-1) != len(starts) - 1:
        reasons.append(f"categories have shape {list(categories.shape)}, expected [N, {len(starts) - 1}]")
    if categories.dtype != torch.int64:
        reasons.append(f"categories have type {categories.dtype}, expected torch.int64")
    if not table.is_floating_point() or table.dim() != 2:
        reasons.append(f"tables have shape {list(table.shape)} and type {table.dtype}")
    if table.device != categories.device:
        reasons.append(f"tables are on {table.device}, categories on {categories.device}")
    if reasons:
        raise UnsupportedOp("embedding_sum", reasons)
    return kernels.embedding_sum(table, categories, starts)


@_custom.gradient(
    "embedding_sum_backward(Tensor grad_out, Tensor categories, Tensor starts, int rows, str kernels) -> Tensor",
    fake=lambda grad_out, categories, starts, rows, kernels: _custom.like(grad_out, rows, grad_out.size(1)),
)
def _backward(grad_out: Tensor, categories: Tensor, starts: Tensor, rows: int, kernels: Kernels) -> Tensor:
    return kernels.embedding_sum_backward(grad_out, categories, starts)


@_custom.differentiates(_sum)
class _EmbeddingSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, categories: Tensor, starts: Tensor, kernels: Any) -> Tensor:
        ctx.how = (table.size(0), kernels)
        ctx.save_for_backward(categories, starts)
        out: Tensor = _custom.below_autograd(ctx, _sum, table, categories, starts, kernels)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        return _backward(grad_out, *ctx.saved_tensors, *ctx.how), None, None, None


def _by_table(tables: Tensor, categories: Tensor) -> Tensor:
    """Add up as OGB's encoders do, table by table."""
    return reduce(torch.add, map(F.embedding, categories.unbind(1), tables.unbind()))


WORKLOADS = {
    "embedding_sum": Workload(
        inputs={"tables": "KTF", "categories": "RK"},
        out="RF",
        call=lambda kernels, _, tables, categories: embedding_sum(kernels, tables.unbind(), categories),
        sizes={"R": "rows", "K": "tables", "F": "features"},
        shapes=("820x9x300", "6500x9x300", "1700x3x300"),
        fixed={"T": 64},
        integers={"categories": 64},
        saved=("categories",),
        peers={"torch": _by_table},
    )
}
