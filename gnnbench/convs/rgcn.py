"""RGCNConv: out = W_0 x + b + sum over r of W_r reduce(x over in-edges of r) (Schlichtkrull et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.nn import FastRGCNConv, RGCNConv

from gnnbench.convs import _checks, _cost, _edges
from gnnbench.convs._edges import Ends, Rewrites
from gnnbench.convs._relations import Chunk, Relations, by_relation, relations
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.kernels import EXTREMA, REDUCTIONS, Kernels
from gnnbench.ops.spmm import check, spmm

CONV = "RGCNConv"
# Measured on random graphs of 8 to 46 relations and on WordNet18RR, on an AMD EPYC (Zen 4): the least saved.
COST = _cost.Cost(_cost.Rates(400_000, 130, 0, 40, 0.6), _cost.Rates(800_000, 220, 0, 70, 2.0), gathers_input=True)
ops = _checks.ops
LEAST_ROWS = 2048  # of a relation in a chunk, about, as products of fewer are slow


def unsupported(conv: RGCNConv) -> list[str]:
    plain = conv.num_bases is None and conv.num_blocks is None
    at_once = torch_geometric.typing.WITH_SEGMM and plain and _checks.reduction(conv) != "sum"
    why = "PyG reduces over all relations at once where it multiplies by pyg-lib"
    return _checks.common(conv, REDUCTIONS) + [why] * at_once


def forward(
    conv: RGCNConv, kernels: Kernels, rewrites: Rewrites, x: Ends, graph: Graph, edge_type: Tensor | None = None
) -> Tensor:
    """Output [N, out_channels] of features x [N, in_channels], or of a pair of sources [M, .] and destinations.

    `edge_type` [E] int64 is in the order of PyG's `edge_index`. The output has the default type at least, as
    PyG adds all relations to zeros of that, but in a FastRGCNConv.
    """
    x_src, x_dst = _edges.pair(x)
    if x_dst is None:
        raise UnsupportedOp(type(conv).__name__, ["a pair without features of destinations"])
    of, reduce, weight = relations(conv, graph, edge_type), _checks.reduce_of(conv), conv.weight
    if conv.num_bases is not None:
        weight = (conv.comp @ weight.flatten(1)).unflatten(1, weight.shape[1:])
    simple = weight.dim() == 3 and weight.dtype == x_src.dtype and not torch.is_autocast_enabled(x_src.device.type)
    if simple and reduce not in EXTREMA:
        check(kernels, graph, x_src, None, reduce)
        out: Tensor = _Sum.apply(x_src.resolve_neg().contiguous(), weight, kernels, of, reduce)
    else:
        out = _whole(x_src, weight, kernels, of, reduce)
    out = out if conv.root is None else out + x_dst @ conv.root
    out = out if conv.bias is None else out + conv.bias
    if isinstance(conv, FastRGCNConv):
        return out
    return out.to(torch.promote_types(out.dtype, torch.get_default_dtype()))


def _whole(x: Tensor, weight: Tensor, kernels: Kernels, of: Relations, reduce: str) -> Tensor:
    """Reduce by relation, multiply by weight [R, F, O] or its blocks [R, B, ., .], and sum over relations."""
    (chunk,) = of.chunks(of.graph.num_edges + 1, x.dtype)
    reduced = spmm(kernels, chunk.pairs, x, None, reduce)
    products = by_relation(reduced, weight, chunk.sizes)
    return spmm(kernels, chunk.sums, products.to(reduced.dtype), None, "sum")


class _Sum(torch.autograd.Function):
    """`_whole` of a sum or mean, some destinations at a time, and some sources in the backward.

    What is reduced then stays in the cache and is not kept: the gradient of sources is the same sum over the
    reversed edges, and that of the weights is a product of their features with what it reduces.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, kernels: Kernels, of: Relations, reduce: str) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.how = kernels, of, reduce
        out, weights = x.new_empty(of.graph.num_rows, weight.size(2)), weight.mT.contiguous().unbind()
        for chunk in of.chunks(_pairs_of_chunk(kernels, weight), x.dtype):
            reduced = _reduced(kernels, chunk, x, reduce)
            out[chunk.rows] = _sum(kernels, chunk, reduced, weights)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (kernels, of, reduce) = ctx.saved_tensors, ctx.how
        needs_x, needs_weight = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():  # for a gradient of gradients
            wanted = [each for each, needs in ((x, needs_x), (weight, needs_weight)) if needs]
            grads = iter(torch.autograd.grad(_whole(x, weight, *ctx.how), wanted, grad, create_graph=True))
            return next(grads) if needs_x else None, next(grads) if needs_weight else None, None, None, None
        grad_x = torch.empty_like(x) if needs_x else None
        grad_weight = torch.zeros_like(weight) if needs_weight else None
        weights = weight.contiguous().unbind()
        grad_weights: Sequence[Tensor] = () if grad_weight is None else grad_weight.unbind()
        grad = grad.resolve_neg().contiguous()
        for chunk in of.chunks(_pairs_of_chunk(kernels, weight), x.dtype, reverse=True):
            reduced = _reduced(kernels, chunk, grad, reduce)
            if grad_x is not None:
                grad_x[chunk.rows] = _sum(kernels, chunk, reduced, weights)
            if grad_weights:
                own = x.index_select(0, chunk.row).split(chunk.sizes)
                for of_x, of_grad, out in zip(own, reduced.split(chunk.sizes), grad_weights, strict=True):
                    kernels.add_weight_grad(of_x, of_grad, out)
        return grad_x, grad_weight, None, None, None


def _pairs_of_chunk(kernels: Kernels, weight: Tensor) -> int:
    fitting = kernels.chunk_bytes // (4 * max(weight.shape[1:]) * weight.element_size())
    return max(1, fitting, LEAST_ROWS * len(weight))


def _reduced(kernels: Kernels, chunk: Chunk, x: Tensor, reduce: str) -> Tensor:
    return kernels.spmm(chunk.pairs, x, chunk.shares if reduce == "mean" else None, "sum")


def _sum(kernels: Kernels, chunk: Chunk, reduced: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Multiply by the weights [O, F] of relations, and sum over them."""
    products = reduced.new_empty(len(reduced), len(weights[0]))
    for part, each, out in zip(reduced.split(chunk.sizes), weights, products.split(chunk.sizes), strict=True):
        kernels.product(part, each, out)
    return kernels.spmm(chunk.sums, products, None, "sum")
