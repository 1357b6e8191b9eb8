"""Fused attention, by `cython_kernels/attention.pyx`: nothing is kept per edge, and backward computes it again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._compiled import addresses
from gnnbench.backends.isplib.edge_choices import ATTENTION, EdgeChoices
from gnnbench.backends.isplib.workspace import in_huge_pages
from gnnbench.graph import Graph
from gnnbench.ops.dropout import WORD, Dropout
from gnnbench.ops.families import Family, Inputs

native = _compiled.load("attention")


class AttentionKernels(EdgeChoices):
    """Attention of every family that has kernels here, forward and backward."""

    def unsupported(self, op: str, graph: Graph, *tensors: Tensor | None) -> list[str]:
        reasons = super().unsupported(op, graph, *tensors)
        if op.endswith("_attention") and not all(tensor is None or all(tensor.shape[1:]) for tensor in tensors):
            reasons.append("a tensor has no heads or no channels; isplib needs at least one of each")
        return reasons

    def attention(
        self, graph: Graph, family: Family, inputs: Inputs, slope: float, dropout: Dropout | None, keep: bool
    ) -> tuple[Tensor, ...]:
        if family.op not in ATTENTION:
            return super().attention(graph, family, inputs, slope, dropout, keep)
        inputs = tuple(tensor.contiguous() for tensor in inputs)
        value, call = family.roles(inputs)[2], self._call(family, inputs, slope, dropout)
        out = in_huge_pages(torch.empty(graph.num_rows, *value.shape[1:], dtype=value.dtype))
        stats = out.new_empty(*out.shape[:2], 2)
        kept = (_like(out), out.new_empty(out.shape[:2])) if keep else ()
        where = addresses(graph.rowptr, graph.col, out, stats, *(kept or (None, None)))
        call.forward(*where, graph.num_rows, *self._walk(family.op, graph, value))
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
        if family.op not in ATTENTION:
            return super().attention_backward(graph, family, inputs, slope, dropout, kept, grad_out)
        inputs = tuple(tensor.contiguous() for tensor in inputs)
        out, stats, *positive = (tensor.contiguous() for tensor in kept)
        query, key, value, _ = family.roles(inputs)
        call, op, transpose = self._call(family, inputs, slope, dropout), f"{family.op}_backward", graph.transpose
        grad_out, grad_query = grad_out.contiguous(), _like(query)
        # What passes over edges read of destinations: grad_out over the row's sum [N, H, C], and [N, H, 2].
        terms = _like(out), torch.empty_like(stats)
        of_scores = (*positive, grad_query) if positive else (None, None, None)
        walk = graph.num_rows, *self._walk(op, graph, out)
        call.terms(*addresses(graph.rowptr, grad_out, out, stats, *of_scores, *terms), *walk)
        if not positive:
            call.grad_query(*addresses(graph.rowptr, graph.col, *terms, grad_query), *walk)
        grad_key, grad_value = _like(key), _like(value)
        perm = None if dropout is None else graph.perm
        where = addresses(transpose.rowptr, transpose.col, perm, *terms, grad_key, grad_value)
        call.grad_key(*where, graph.num_cols, *self._walk(op, transpose, out))
        return family.completed(inputs, grad_query, grad_key, grad_value)

    def _call(self, family: Family, inputs: Inputs, slope: float, dropout: Dropout | None) -> Any:
        query, key, value, att = family.roles(inputs)
        width, channels = key.size(2) if key.dim() == 3 else 1, value.size(2)
        shortest = min(width, channels) if key.dim() == 3 else channels  # numbers are read one by one
        sizes, how = (value.size(1), width, channels), (slope, shortest, value.dtype == torch.float64, self.isa)
        call = native.Attention(family.name, *addresses(query, key, value, att), *sizes, *how)
        if dropout is not None:
            call.drop(dropout.threshold, dropout.scale, dropout.first & WORD, *dropout.words())
        return call

    def _walk(self, op: str, graph: Graph, value: Tensor) -> tuple[int | str, int | str]:
        """Edges at a time, and threads, of a pass over the rows of `graph`."""
        heads, channels = value.shape[1:]
        choice = self.chosen(op, graph, heads * channels, value.dtype, heads)
        return choice["chunk"], choice["threads"]


def _like(tensor: Tensor) -> Tensor:
    return in_huge_pages(torch.empty_like(tensor))
