"""Ops on features before a conv: dropout, and products with those that are mostly zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.graph.layout import ptr_of
from gnnbench.ops import _custom
from gnnbench.ops._workload import Workload
from gnnbench.ops.dropout import Dropout, drawn_seed
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.spmm import spmm

MOST = 1 / 3  # of features that are not zero, for which products without the zeros still pay


def dropout(kernels: Kernels, x: Tensor | Features, p: float = 0.5, training: bool = True, first: int = 0) -> Any:
    """`torch.nn.functional.dropout` of x, floating point and of any shape, by a hash.

    What is dropped depends on a seed of torch's generator and on the place of each number, so that only the seed
    is kept for backward. The random numbers are others than torch's.

    Args:
        first: how many numbers stand before those of x, where other processes have them.

    Returns:
        The shape of x, differentiable in it; x itself where nothing is to be dropped.

    Raises:
        ValueError: p is not from 0 to 1.
        UnsupportedOp: x is not floating point.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if isinstance(x, Features):
        return x.of_value(dropout(kernels, x.value, p, training, first))
    if training and not x.is_floating_point():
        raise UnsupportedOp("dropout", [f"x has type {x.dtype}, expected floating point"])
    seed = drawn_seed(p, x.device) if training else None
    return x if seed is None else _dropout(x, seed, p, first, kernels)


@_custom.op(lambda x, **_: _custom.like(x))
def _dropout(x: Tensor, seed: Tensor, p: float, first: int, kernels: Kernels) -> Tensor:
    return kernels.dropout(x.contiguous(), Dropout(p, seed, first))


@_custom.gradient(lambda grad_out, **_: _custom.like(grad_out))
def _dropout_backward(grad_out: Tensor, seed: Tensor, p: float, first: int, kernels: Kernels) -> Tensor:
    return kernels.dropout(grad_out.contiguous(), Dropout(p, seed, first))


@_custom.differentiates(_dropout)
class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: Tensor, *how: Any) -> Tensor:
        ctx.how = how
        ctx.save_for_backward(seed)
        return _custom.below_autograd(ctx, _dropout, x, seed, *how)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        return _dropout_backward(grad_out, *ctx.saved_tensors, *ctx.how), None, None, None, None


class Features:
    """Features [N, F] without their zeros: dropout, and products with weights, take them in place of a tensor.

    A product is an aggregation over the graph of nodes and features, as in the code of Kipf & Welling 2017. What
    else torch does with a tensor is a TypeError.

    Args:
        kernels: the kernels that compute the products.
        graph: N nodes as destinations, F features as sources.
        value: [E] features, in the order of `graph.col`.
    """

    requires_grad = False

    def __init__(self, kernels: Kernels, graph: Graph, value: Tensor) -> None:
        self.kernels, self.graph, self.value = kernels, graph, value
        self.shape = torch.Size((graph.num_rows, graph.num_cols))
        self.dtype, self.device = value.dtype, value.device

    @classmethod
    def of(cls, kernels: Kernels, x: Tensor) -> Features:
        """x [N, F], and the plans for products with it and with its transpose."""
        row, col = x.nonzero(as_tuple=True)
        rowptr = ptr_of(torch.bincount(row, minlength=x.size(0)))
        graph = Graph.from_csr(rowptr, col, x.size(1), layout=kernels)
        for each in (graph, graph.transpose):
            kernels.plan(each)
        _ = graph.perm
        return cls(kernels, graph, x[row, col])

    def of_value(self, value: Tensor) -> Features:
        """Other features, which are zero in the same places."""
        return Features(self.kernels, self.graph, value)

    def size(self, dim: int) -> int:
        return self.shape[dim]

    def dim(self) -> int:
        return 2

    def is_inference(self) -> bool:
        return self.value.is_inference()

    def __matmul__(self, weight: Tensor) -> Tensor:
        out = spmm(self.kernels, self.graph, weight.contiguous(), self.value)
        lower = torch.is_autocast_enabled(self.device.type) and out.dtype == torch.float32
        return out.to(torch.get_autocast_dtype(self.device.type)) if lower else out

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        replaced = _REPLACED.get(function)
        return NotImplemented if replaced is None else replaced(*args, **kwargs or {})


def mostly_zero(x: Tensor) -> bool:
    """Return whether features x are constant, floating point, and at most `MOST` of them are not zero."""
    if x.dim() != 2 or not x.is_floating_point() or x.requires_grad or not x.numel():
        return False
    return int(x.count_nonzero()) <= MOST * x.numel()


def _linear(x: Features, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    out = x @ weight.t()
    return out if bias is None else out + bias


def _drop(x: Features, p: float = 0.5, training: bool = True, inplace: bool = False) -> Features:
    return x.of_value(F.dropout(x.value, p, training))


_REPLACED: dict[Any, Callable[..., Any]] = {
    F.linear: _linear,
    F.dropout: _drop,
    torch.addmm: lambda out, x, weight: out + x @ weight,
}


WORKLOADS = {
    "dropout": Workload(
        inputs={"x": "RF"},
        out="RF",
        call=lambda kernels, _, x: _dropout(x, torch.tensor([1], device=x.device), 0.5, 0, kernels),
        sizes={"R": "rows", "F": "features"},
        saved=(),
        peers={"torch": lambda x: F.dropout(x, 0.5)},
        random="draws other numbers than ours, so that it is not checked",
    )
}
