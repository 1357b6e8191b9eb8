"""Fused attention: nothing is kept per edge, and backward computes it again, without atomics."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnbench.backends.cuda._base import Segments, Tile, acc_type, hubs, launch, power_of_two, rows, start, sums_in
from gnnbench.backends.cuda.attention_kernels import attention_kernel, delta_kernel, edge_kernel, gradient_kernel
from gnnbench.backends.cuda.choices import ChoosingKernels, Tiling
from gnnbench.backends.cuda.families import ON_DEVICE
from gnnbench.backends.cuda.spmm import sum_slices
from gnnbench.graph import Graph
from gnnbench.ops.dropout import WORD, Dropout
from gnnbench.ops.families import Attention, Family, Inputs

SUM_CHANNELS = 256  # of a program that sums slices
NODE_ELEMENTS = 2048  # of nodes that a program holds at a time

Tensors = tuple["Tensor | None", ...]


class Read(NamedTuple):
    """The inputs that kernels of every family share."""

    family: Family | None  # None where keys are scores, or stats of slices
    query: Tensor | None
    key: Tensor
    value: Tensor
    att: Tensor | None
    slope: float
    dropout: Dropout | None

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return those of the arguments that are tensors, with dropout's seed."""
        seed = None if self.dropout is None else self.dropout.seed
        return self.query, self.key, self.value, self.att, seed

    @property
    def drop(self) -> tuple[int, int, int]:
        """The number of edge 0 to dropout, its threshold, and the bits of its scale."""
        if self.dropout is None:
            return 0, 0, 0
        (bits,) = struct.unpack("q", struct.pack("d", self.dropout.scale))
        return self.dropout.first & WORD, self.dropout.threshold, bits

    @property
    def constants(self) -> dict[str, Any]:
        """Scores and sizes; a number counts as one channel."""
        number = self.key.dim() == 2
        width = 1 if number else self.key.size(2)
        sizes = {"H": self.value.size(1), "C": width, "D": self.value.size(2)}
        blocks = {f"BLOCK_{name}": power_of_two(size) for name, size in sizes.items()}
        sums = acc_type(self.value.dtype)
        score, shared = None, False
        if self.family is not None:
            score, shared = ON_DEVICE[self.family.name].score, "value" not in self.family.inputs
        scores = {"SCORE": score, "NUMBER": number, "SHARED": shared, "SLOPE": self.slope}
        return {**scores, "ACC": sums, **sizes, **blocks}


Merge = Callable[[Tiling, Segments, Tensors, Tensors], None]  # of slices' results into rows'


class AttentionKernels(ChoosingKernels):
    """Attention of every family that has kernels here, forward and backward."""

    def attention(self, graph: Graph, given: Attention, keep: bool) -> tuple[Tensor, ...]:
        if given.family.name not in self.families:
            return super().attention(graph, given, keep)
        read, value = Read(given.family, *given.roles, given.slope, given.dropout), given.roles[2]
        tiling = self._tiling(given.family.op, graph, read)
        out = value.new_empty(graph.num_rows, *value.shape[1:], dtype=sums_in(value.dtype))
        stats = out.new_empty(*out.shape[:2], 2)
        kept = (torch.empty_like(out), out.new_empty(out.shape[:2])) if keep else (None, None)
        if tiling.by_edge:
            scores = out.new_empty(graph.num_edges, value.size(1))
            _over_edges(graph, read, tiling, None, None, scores)
            read = read._replace(family=None, query=None, key=scores, att=None)
        tensors, results = (graph.col, *read.tensors), (out, stats, *kept)
        _over_rows(attention_kernel, graph, tiling, read, tensors, results, _merge_softmax, SLICES=False)
        return out, stats, *(tensor for tensor in kept if tensor is not None)

    def attention_backward(self, graph: Graph, given: Attention, kept: Inputs, grad_out: Tensor) -> Inputs:
        if given.family.name not in self.families:
            return super().attention_backward(graph, given, kept, grad_out)
        family, inputs, slope, dropout = given
        _, gradient, completed = ON_DEVICE[family.name]
        query, key, value, _ = given.roles
        read, op = Read(family, *given.roles, slope, dropout), f"{family.op}_backward"
        out, stats, *positive = kept
        transpose, grad_out, grad_query = graph.transpose, grad_out.contiguous(), torch.empty_like(query)
        node = _with_delta(stats, out, grad_out, positive, grad_query, slope)
        by_source = self._tiling(op, transpose, read)
        by_destination = None if positive else self._tiling(op, graph, read)
        edges = None  # [E, H, 2]: alpha after dropout and the gradient of the score
        if wanted := [tiling for tiling in (by_destination, by_source) if tiling and tiling.by_edge]:
            edges = node.new_empty(graph.num_edges, node.size(1), 2)
            _over_edges(graph, read, wanted[0], node, grad_out, edges)

        def run(side: Graph, tiling: Tiling, perm: Tensor | None, results: Tensors, of_key: bool) -> None:
            tensors = side.col, perm, *read.tensors, node, edges if tiling.by_edge else None, grad_out
            constants = {"OF_KEY": of_key, "GRADIENT": gradient}
            _over_rows(gradient_kernel, side, tiling, read, tensors, results, _sum_up, **constants)

        if by_destination:
            run(graph, by_destination, None, (grad_query, None), of_key=False)
        perm = graph.perm if by_source.by_edge or dropout is not None else None
        of_source = torch.empty_like(key), torch.empty_like(value)
        run(transpose, by_source, perm, of_source, of_key=True)
        return (completed or family.completed)(inputs, grad_query, *of_source)

    def _tiling(self, op: str, graph: Graph, read: Read) -> Tiling:
        sizes = read.constants
        return self.tiling(op, graph, sizes["H"], sizes["C"], sizes["D"], read.value.dtype)


def _over_rows(
    kernel: Any,
    graph: Graph,
    tiling: Tiling,
    read: Read,
    tensors: Tensors,
    results: Tensors,
    merge: Merge,
    **own: Any,
) -> None:
    """Start `kernel` on every row, but on the slices of those that are too long, which `merge` puts together.

    It has constants of its `own`.
    """
    _start(kernel, tiling, read, rows(graph, tiling.longest), False, *tensors, *results, **own)
    if cut := hubs(graph, tiling.longest):
        partial = tuple(tensor if tensor is None else cut.partial(tensor) for tensor in results)
        _start(kernel, tiling, read, cut.slices, True, *tensors, *partial, **own)
        merge(tiling, cut.rows, partial, results)


def _merge_softmax(tiling: Tiling, slices: Segments, partial: Tensors, results: Tensors) -> None:
    """Slices are mixed as edges are, by a softmax, where each counts as the sum of its own edges' terms."""
    mixed, sums, *mixed_positive = partial
    out, stats, *kept = results
    for value, result in zip([mixed, *mixed_positive], [out, *kept], strict=True):
        if value is not None and sums is not None:
            read = Read(None, None, sums, value.view(*sums.shape[:2], -1), None, 1.0, None)
            tensors = None, *read.tensors, result, stats, None, None
            _start(attention_kernel, tiling, read, slices, False, *tensors, SLICES=True)


def _sum_up(tiling: Tiling, slices: Segments, partial: Tensors, results: Tensors) -> None:
    """Gradients of slices are summed."""
    for parts, result in zip(partial, results, strict=True):
        if parts is not None and result is not None:
            width = prod(parts.shape[1:])
            tile = Tile((1, width), 1, 1, 1, min(power_of_two(width), SUM_CHANNELS), num_warps=1)
            sum_slices(tile, slices, parts, result)


def _with_delta(
    stats: Tensor, out: Tensor, grad_out: Tensor, positive: Sequence[Tensor], grad_score: Tensor, slope: float
) -> Tensor:
    """[N, H, 3]: what edges read of destinations; where `positive` was kept, query's gradient is `grad_score`."""
    terms, width = stats.new_empty(*out.shape[:2], 3), out.size(2)
    block_d = power_of_two(width)
    block, sums = max(NODE_ELEMENTS // block_d, 1), acc_type(stats.dtype)
    of_scores = (*positive, terms, grad_score) if positive else (None, None, terms, None)
    sizes: dict[str, Any] = {"D": width, "BLOCK_D": block_d, "BLOCK": block, "num_warps": 4}
    sizes["SLOPE"] = slope if positive else 1.0
    count = out.size(0) * out.size(1)
    start(delta_kernel, (-(-count // block),), out, stats, grad_out, *of_scores, count, ACC=sums, **sizes)
    return terms


def _over_edges(
    graph: Graph, read: Read, tiling: Tiling, node: Tensor | None, grad_out: Tensor | None, edges: Tensor
) -> None:
    """Start `edge_kernel`; as many edges to a program as of `tiling`."""
    constants, units = read.constants, tiling.units * tiling.edges
    grid = (-(-graph.num_edges * constants["BLOCK_H"] // units),)
    tensors = graph.row, graph.col, *read.tensors, node, grad_out, edges, graph.num_edges
    start(edge_kernel, grid, *tensors, *read.drop, **constants, UNITS=units, num_warps=tiling.num_warps)


def _start(
    kernel: Any, tiling: Tiling, read: Read, segments: Segments, partial: bool, *tensors: Any, **own: Any
) -> None:
    """Start one of the kernels over edges, whose results are of segments if `partial`, else of rows."""
    constants = read.constants
    grid = (-(-segments.count * constants["BLOCK_H"] // tiling.units),)
    blocks = {"UNITS": tiling.units, "EDGES": tiling.edges, "PARTIAL": partial, "num_warps": tiling.num_warps}
    launch(kernel, grid, segments, *tensors, *read.drop, **constants, **blocks, **own)
