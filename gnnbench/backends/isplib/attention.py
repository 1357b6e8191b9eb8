"""Fused attention, by `cython_kernels/attention.pyx`: nothing is kept per edge, and backward computes it again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import csr
from gnnbench.backends.isplib.choices import FAMILIES, ChoosingKernels
from gnnbench.backends.isplib.workspace import in_huge_pages
from gnnbench.graph import Graph
from gnnbench.ops.dropout import WORD, Dropout
from gnnbench.ops.families import Family, Inputs

native = _compiled.load("attention")

KEPT = ("out", "stats", "out_positive", "alpha_positive")  # for backward, the last two where that needs no scores


class AttentionKernels(ChoosingKernels):
    """Attention of every family that has kernels here, forward and backward."""

    families: ClassVar[Collection[str]] = FAMILIES

    def unsupported(self, op: str, graph: Graph, *tensors: Tensor | None) -> list[str]:
        reasons = super().unsupported(op, graph, *tensors)
        if op.endswith("_attention") and not all(tensor is None or all(tensor.shape[1:]) for tensor in tensors):
            reasons.append("a tensor has no heads or no channels; isplib needs at least one of each")
        return reasons

    def attention(
        self, graph: Graph, family: Family, inputs: Inputs, slope: float, dropout: Dropout | None, keep: bool
    ) -> tuple[Tensor, ...]:
        if family.name not in self.families:
            return super().attention(graph, family, inputs, slope, dropout, keep)
        inputs = tuple(tensor.contiguous() for tensor in inputs)
        value = family.roles(inputs)[2]
        out = in_huge_pages(torch.empty(graph.num_rows, *value.shape[1:], dtype=value.dtype))
        stats = out.new_empty(*out.shape[:2], 2)
        kept = (_like(out), out.new_empty(out.shape[:2])) if keep else ()
        results = dict(zip(KEPT, (out, stats, *kept), strict=False))
        self._run(native.forward, family, family.op, graph, _task(graph, family, inputs, slope, dropout) | results)
        return out, stats, *kept

    def attention_backward(
        self,
        graph: Graph,
        family: Family,
        inputs: Inputs,
        slope: float,
        dropout: Dropout | None,
        kept: tuple[Tensor, ...],
        grad_out: Tensor,
    ) -> tuple[Tensor, ...]:
        if family.name not in self.families:
            return super().attention_backward(graph, family, inputs, slope, dropout, kept, grad_out)
        inputs = tuple(tensor.contiguous() for tensor in inputs)
        results = dict(zip(KEPT, (tensor.contiguous() for tensor in kept), strict=False))
        query, key, value, _ = family.roles(inputs)
        op, positive, grad_query = f"{family.op}_backward", "out_positive" in results, _like(query)
        task = _task(graph, family, inputs, slope, dropout)
        # What passes over edges read of destinations: grad_out over the row's sum [N, H, C], and [N, H, 2].
        terms = {"grad": _like(results["out"]), "node": torch.empty_like(results["stats"])}
        given = {"grad_out": grad_out.contiguous(), **results, **({"grad_query": grad_query} if positive else {})}
        self._run(native.terms, family, op, graph, task | terms | given)
        task |= terms
        if not positive:
            self._run(native.grad_query, family, op, graph, task | {"grad_mine": grad_query})
        grad_key, grad_value, transpose = _like(key), _like(value), graph.transpose
        task |= {"rowptr": transpose.rowptr, "col": transpose.col, "walked": graph.num_cols}
        task |= {"grad_mine": grad_key, "grad_value": grad_value, "perm": None if dropout is None else graph.perm}
        self._run(native.grad_key, family, op, transpose, task)
        return family.completed(inputs, grad_query, grad_key, grad_value)

    def _run(
        self, kernel: Callable[..., None], family: Family, op: str, graph: Graph, task: dict[str, Any]
    ) -> None:
        """Run a pass over the rows of `graph`."""
        heads, width, channels = task["heads"], task["width"], task["channels"]
        shortest = min(width, channels) if task["key"].dim() == 3 else channels  # numbers are read one by one
        choice = self.chosen(op, graph, heads * channels, task["value"].dtype, heads)
        kernel(family.name, shortest, self.isa, choice["threads"], chunk=choice["chunk"], **task)


def _task(graph: Graph, family: Family, inputs: Inputs, slope: float, dropout: Dropout | None) -> dict[str, Any]:
    """The fields that all passes read, over the rows of `graph`."""
    query, key, value, att = family.roles(inputs)
    heads, channels = value.shape[1:]
    sizes = {"heads": heads, "width": key.size(2) if key.dim() == 3 else 1, "channels": channels}
    task = {**csr(graph), **sizes, "walked": graph.num_rows, "slope": slope}
    task |= {"query": query, "key": key, "value": value, "att": att}
    if dropout is not None:
        task |= dict(zip(("low", "high"), dropout.words(), strict=True))
        task |= {"drops": 1, "threshold": dropout.threshold, "first": dropout.first & WORD, "scale": dropout.scale}
    return task


def _like(tensor: Tensor) -> Tensor:
    return in_huge_pages(torch.empty_like(tensor))
