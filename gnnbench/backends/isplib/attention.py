"""Fused attention, by `cython_kernels/attention.pyx`: nothing is kept per edge, and backward computes it again."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import csr
from gnnbench.backends.isplib.choices import FAMILIES, ChoosingKernels
from gnnbench.backends.isplib.workspace import in_huge_pages
from gnnbench.graph import Graph
from gnnbench.ops.dropout import WORD
from gnnbench.ops.families import Attention, Inputs

native = _compiled.load("attention")

KEPT = ("out", "stats", "out_positive", "alpha_positive")  # for backward, the last two where that needs no scores


class AttentionKernels(ChoosingKernels):
    """Attention of every family that has kernels here, forward and backward."""

    families: ClassVar[Collection[str]] = FAMILIES

    def attention(self, graph: Graph, given: Attention, keep: bool) -> tuple[Tensor, ...]:
        if given.family.name not in self.families:
            return super().attention(graph, given, keep)
        value = given.roles[2]
        out = in_huge_pages(torch.empty(graph.num_rows, *value.shape[1:], dtype=value.dtype))
        stats = out.new_empty(*out.shape[:2], 2)
        kept = (_like(out), out.new_empty(out.shape[:2])) if keep else ()
        results = dict(zip(KEPT, (out, stats, *kept), strict=False))
        self._run(native.forward, given, "", graph, _task(graph, given) | results)
        return out, stats, *kept

    def attention_backward(self, graph: Graph, given: Attention, kept: Inputs, grad_out: Tensor) -> Inputs:
        if given.family.name not in self.families:
            return super().attention_backward(graph, given, kept, grad_out)
        results = dict(zip(KEPT, (tensor.contiguous() for tensor in kept), strict=False))
        query, key, value, _ = given.roles
        positive, grad_query, task = "out_positive" in results, _like(query), _task(graph, given)
        # What passes over edges read of destinations: grad_out over the row's sum [N, H, C], and [N, H, 2].
        terms = {"grad": _like(results["out"]), "node": torch.empty_like(results["stats"])}
        read = {"grad_out": grad_out.contiguous(), **results}
        if positive:
            read["grad_query"] = grad_query
        self._run(native.terms, given, "_backward", graph, task | terms | read)
        task |= terms
        if not positive:
            self._run(native.grad_query, given, "_backward", graph, task | {"grad_mine": grad_query})
        grad_key, grad_value, transpose = _like(key), _like(value), graph.transpose
        task |= {"rowptr": transpose.rowptr, "col": transpose.col, "walked": graph.num_cols}
        perm = None if given.dropout is None else graph.perm
        task |= {"grad_mine": grad_key, "grad_value": grad_value, "perm": perm}
        self._run(native.grad_key, given, "_backward", transpose, task)
        return given.family.completed(given.inputs, grad_query, grad_key, grad_value)

    def _run(self, kernel: Any, given: Attention, direction: str, graph: Graph, task: dict[str, Any]) -> None:
        """Run a pass over the rows of `graph`."""
        heads, width, channels = task["heads"], task["width"], task["channels"]
        shortest = min(width, channels) if task["key"].dim() == 3 else channels  # numbers are read one by one
        op = given.family.op + direction
        choice = self.chosen(op, graph, heads * channels, task["value"].dtype, heads)
        kernel(given.family.name, shortest, self.isa, choice["threads"], chunk=choice["chunk"], **task)


def _task(graph: Graph, given: Attention) -> dict[str, Any]:
    """The fields that all passes read, over the rows of `graph`."""
    (query, key, value, att), dropout = given.roles, given.dropout
    heads, channels = value.shape[1:]
    sizes = {"heads": heads, "width": key.size(2) if key.dim() == 3 else 1, "channels": channels}
    task = {**csr(graph), **sizes, "walked": graph.num_rows, "slope": given.slope}
    task |= {"query": query, "key": key, "value": value, "att": att}
    if dropout is not None:
        task |= dict(zip(("low", "high"), dropout.words(), strict=True))
        task |= {"drops": 1, "threshold": dropout.threshold, "first": dropout.first & WORD, "scale": dropout.scale}
    return task


def _like(tensor: Tensor) -> Tensor:
    return in_huge_pages(torch.empty_like(tensor))
