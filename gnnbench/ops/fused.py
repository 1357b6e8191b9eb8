"""Programs over the edges of a graph, run and differentiated.

Gradients of sources are reduced over the rows of the transposed graph.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gnnbench.graph import Graph
from gnnbench.ops.kernels import EXTREMA, Kernels
from gnnbench.ops.program import SWAPPED, Leaf, Program, Writer, gradient


def run(kernels: Kernels, graph: Graph, program: Program, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Run a Program over the edges of a graph.

    Args:
        kernels: they run it.
        graph: N destinations, M sources, E edges.
        tensors: [M, width], [N, width] or [E, width], one for each leaf, contiguous.

    Returns:
        [M, width], [N, width] or [E, width] for each sink, zero for a node without edges; differentiable to any
        order.
    """
    return _Run.apply(kernels, graph, program, *tensors)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kernels: Kernels, graph: Graph, program: Program, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        outs = computed(kernels, graph, program, tensors)
        ctx.how, ctx.number = (kernels, graph, program), len(tensors)
        found = ctx.found = gradient(program, tuple(k for k, need in enumerate(ctx.needs_input_grad[3:]) if need))
        again = any(sink.reduce in EXTREMA for sink in program.sinks)  # which the backward computes once more
        ctx.used = range(len(tensors)) if again else [k for k in found.used if k < len(tensors)]
        ctx.save_for_backward(*(tensors[k] for k in ctx.used))
        return outs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (kernels, graph, program), found = ctx.how, ctx.found
        saved = dict(zip(ctx.used, ctx.saved_tensors, strict=True))
        for k, (sink, grad) in enumerate(zip(program.sinks, grads, strict=True)):
            if sink.reduce in EXTREMA:
                counting = program._replace(sinks=(sink._replace(ties=True),))
                with torch.no_grad():
                    (both,) = computed(kernels, graph, counting, [saved[k] for k in range(ctx.number)])
                saved[ctx.number + len(grads) + k], count = both
                grad = grad / count.clamp(min=1)
            saved[ctx.number + k] = grad.contiguous()
        outs = run(kernels, graph, found.program, [saved[k] for k in found.used])
        result: list[Tensor | None] = [None] * ctx.number
        for k, out in zip(found.leaves, outs, strict=True):
            result[k] = out
        return None, None, None, *result


def computed(kernels: Kernels, graph: Graph, program: Program, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Run a Program without gradients; sinks over sources by a pass over the rows of the transpose."""
    outs: list[Tensor | None] = [None] * len(program.sinks)
    for reverse in (False, True):
        sinks = [k for k, sink in enumerate(program.sinks) if (sink.place == "source") == reverse]
        if not sinks:
            continue
        sub, used = _subprogram(program, tuple(sinks), reverse)
        over, edge_id = (graph.transpose, None) if reverse else (graph, graph.edge_id)
        if reverse and any(leaf.place == "edge" for leaf in sub.leaves):
            edge_id = graph.once("edge_id of the transpose", lambda: _transposed_id(graph))
        for k, out in zip(sinks, kernels.program(over, sub, [tensors[k] for k in used], edge_id), strict=True):
            outs[k] = out
    return tuple(out for out in outs if out is not None)


def _transposed_id(graph: Graph) -> Tensor:
    return graph.perm if graph.edge_id is None else graph.edge_id[graph.perm.long()]


@functools.lru_cache(1024)
def _subprogram(program: Program, sinks: tuple[int, ...], reverse: bool) -> tuple[Program, tuple[int, ...]]:
    """The Program of some sinks, all over nodes, seen from these, or over edges; and the leaves that it needs."""
    sub, used = Writer(program, ()).program([program.sinks[k] for k in sinks])
    if reverse:
        leaves = tuple(Leaf(SWAPPED[place], width) for place, width in sub.leaves)
        sub = sub._replace(leaves=leaves, sinks=tuple(s._replace(place=SWAPPED[s.place]) for s in sub.sinks))
    return sub, used
