"""Scores of edges and their softmax, by `cython_kernels/edge.pyx`, and how passes over edges can be run."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, TypeGuard

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels, csr
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Choice, choice_key

native = _compiled.load("edge")
# Edges of a row that attention walks at a time, and that sddmm prefetches ahead; the first is what runs untuned.
CHUNK, AHEAD = (64, 16, 32, 128), (12, 0, 6, 24)
_attention = _compiled.load("attention")
FAMILIES = tuple(_attention.FAMILIES if _attention else ())  # that were compiled
KNOBS = {
    "sddmm": ("prefetch", AHEAD),
    **{f"{name}_attention{way}": ("chunk", CHUNK) for name in FAMILIES for way in ("", "_backward")},
}
SOFTMAX = 16  # multiplications that the softmax of an edge and head is like
TEAM_WORK = 1 << 15  # multiplications below which waking other threads costs more than they save


class EdgeChoices(BaseKernels):
    """How sddmm and attention run: with how many threads, and with how many edges in flight."""

    families: ClassVar[Collection[str]] = FAMILIES

    def choices(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> list[Choice]:
        if op not in KNOBS:
            return super().choices(op, graph, width, dtype, heads)
        knob, values = KNOBS[op]
        first = self._untuned(op, graph, width, heads)
        teams = sorted({self.threads, 1}, reverse=True)
        every: list[Choice] = [{knob: value, "threads": threads} for threads in teams for value in values]
        return [first, *(choice for choice in every if choice != first)]

    def chosen(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> Choice:
        if op not in KNOBS:
            return super().chosen(op, graph, width, dtype, heads)
        result = graph.whole.cache.get(choice_key(op, width, dtype, heads))
        return result if _possible(result, op, self.threads) else self._untuned(op, graph, width, heads)

    def _untuned(self, op: str, graph: Graph, width: int, heads: int) -> Choice:
        knob, values = KNOBS[op]
        work = width if op == "sddmm" else 2 * width + SOFTMAX * heads
        alone = (graph.num_edges + graph.num_rows) * work < TEAM_WORK
        return {knob: values[0], "threads": 1 if alone else self.threads}


def _possible(choice: object, op: str, most_threads: int) -> TypeGuard[Choice]:
    """Return whether a choice that came from elsewhere can be taken; one kept from more threads cannot."""
    knob, values = KNOBS[op]
    match choice:
        case {"threads": int(threads), **others}:
            return others in [{knob: value} for value in values] and 1 <= threads <= most_threads
    return False


class EdgeKernels(EdgeChoices):
    """Sampled dense-dense products and edge softmax."""

    def unsupported(self, op: str, graph: Graph, *tensors: Tensor | None) -> list[str]:
        reasons = super().unsupported(op, graph, *tensors)
        for tensor in tensors:
            if tensor is not None and op == "edge_softmax" and tensor.size(-1) > native.MAX_HEADS:
                reasons.append(f"{tensor.size(-1)} heads; isplib normalises at most {native.MAX_HEADS}")
        return reasons

    def sddmm(self, graph: Graph, a: Tensor, b: Tensor) -> Tensor:
        a, b = a.contiguous(), b.contiguous()
        heads, width = (1, a.size(1)) if a.dim() == 2 else a.shape[1:]
        choice = self.chosen("sddmm", graph, heads * width, a.dtype, heads)
        # Nothing is written where there are no channels to sum over.
        new = torch.empty if width else torch.zeros
        out = new(graph.num_edges, *a.shape[1:-1], dtype=a.dtype)
        sizes = {**csr(graph), "heads": heads, "width": width, "ahead": choice["prefetch"]}
        native.sddmm(self.isa, choice["threads"], a=a, b=b, out=out, **sizes)
        return out

    def edge_softmax(self, graph: Graph, score: Tensor) -> Tensor:
        score = score.contiguous()
        alpha = torch.empty_like(score)
        sizes = {"rowptr": graph.rowptr, "rows": graph.num_rows, "heads": score.size(1)}
        native.softmax(self.isa, self.threads, score=score, out=alpha, **sizes)
        return alpha

    def edge_softmax_backward(self, graph: Graph, alpha: Tensor, grad_alpha: Tensor) -> Tensor:
        alpha, grad_alpha = alpha.contiguous(), grad_alpha.contiguous()
        grad_score = torch.empty_like(alpha)
        sizes = {"rowptr": graph.rowptr, "rows": graph.num_rows, "heads": alpha.size(1)}
        native.softmax_backward(self.isa, self.threads, score=alpha, grad=grad_alpha, out=grad_score, **sizes)
        return grad_score
