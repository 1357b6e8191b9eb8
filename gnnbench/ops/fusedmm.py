"""FusedMM: SDDMM, a function of the scores and SpMM in one differentiable op that keeps nothing per edge."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops import _custom
from gnnbench.ops._workload import Workload
from gnnbench.ops.edge_fn import EDGE_FNS
from gnnbench.ops.kernels import Kernels


def fusedmm(kernels: Kernels, graph: Graph, x: Tensor, y: Tensor, edge_fn: str = "identity") -> Tensor:
    """out[i] = sum over edges (i, j) of f(<x[i], y[j]>) * y[j].

    Rahman, Sujon and Azad, "FusedMM: A Unified SDDMM-SpMM Kernel for Graph Embedding and Graph Neural
    Networks", IPDPS 2021.

    Args:
        kernels: the kernels that compute it.
        graph: N destinations, M sources.
        x: [N, F] or [N, H, C]; each head has a score of its own.
        y: [M, F] or [M, H, C], of the same type.
        edge_fn: f, one of "identity", "sigmoid", "exp", "leaky_relu" (of slope 0.2) and "tanh".

    Returns:
        The shape of x, differentiable in x and y; a destination without edges gives zero.

    Raises:
        UnsupportedOp: shapes, types or f do not fit, or the kernels decline.
    """
    (y,) = graph.sources(y)
    out: Tensor = _fusedmm(x, y, graph, kernels, edge_fn)
    return out


@_custom.op(
    "fusedmm(Tensor x, Tensor y, str graph, str kernels, str edge_fn) -> Tensor",
    fake=lambda x, y, graph, kernels, edge_fn: _custom.like(x),
)
def _fusedmm(x: Tensor, y: Tensor, graph: Graph, kernels: Kernels, edge_fn: str) -> Tensor:
    graph.check_unchanged()
    reasons = kernels.unsupported("fusedmm", graph, x, y)
    if edge_fn not in EDGE_FNS:
        reasons.append(f"edge_fn is {edge_fn!r}, but must be one of {', '.join(EDGE_FNS)}")
    if x.dim() not in (2, 3) or x.shape[1:] != y.shape[1:] or x.dtype != y.dtype or not x.is_floating_point():
        reasons.append(f"x is {x.dtype} {list(x.shape)}, y is {y.dtype} {list(y.shape)}")
    elif (x.size(0), y.size(0)) != (graph.num_rows, graph.num_cols):
        reasons.append(
            f"x has {x.size(0)} rows and y {y.size(0)}, the graph is {graph.num_rows} x {graph.num_cols}"
        )
    if reasons:
        raise UnsupportedOp("fusedmm", reasons)
    return kernels.fusedmm(graph, x, y, edge_fn)


@_custom.gradient(
    "fusedmm_grad_x(Tensor x, Tensor y, Tensor grad_out, str graph, str kernels, str edge_fn) -> Tensor",
    fake=lambda x, y, grad_out, graph, kernels, edge_fn: _custom.like(x),
)
def _fusedmm_grad_x(
    x: Tensor, y: Tensor, grad_out: Tensor, graph: Graph, kernels: Kernels, edge_fn: str
) -> Tensor:
    return kernels.fusedmm_grad_x(graph, x, y, edge_fn, grad_out)


@_custom.gradient(
    "fusedmm_grad_y(Tensor x, Tensor y, Tensor grad_out, str graph, str kernels, str edge_fn) -> Tensor",
    fake=lambda x, y, grad_out, graph, kernels, edge_fn: _custom.like(y),
)
def _fusedmm_grad_y(
    x: Tensor, y: Tensor, grad_out: Tensor, graph: Graph, kernels: Kernels, edge_fn: str
) -> Tensor:
    return kernels.fusedmm_grad_y(graph, x, y, edge_fn, grad_out)


@_custom.differentiates(_fusedmm)
class _FusedMM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, *how: Any) -> Tensor:
        ctx.how = how
        ctx.save_for_backward(x, y)
        out: Tensor = _custom.below_autograd(ctx, _fusedmm, x, y, *how)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        given = *ctx.saved_tensors, grad_out, *ctx.how
        grad_x = _fusedmm_grad_x(*given) if ctx.needs_input_grad[0] else None
        grad_y = _fusedmm_grad_y(*given) if ctx.needs_input_grad[1] else None
        return grad_x, grad_y, None, None, None


WORKLOADS = {
    "fusedmm": Workload(
        inputs={"x": "NHC", "y": "MHC"},
        out="NHC",
        call=fusedmm,
        gathers={"forward": 1, "backward": 3},
        scaled=True,
    )
}
