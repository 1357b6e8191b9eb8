"""Fused attention: nothing is kept per edge, and backward computes it again, without atomics."""

from __future__ import annotations

import struct
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnbench.backends.cuda._base import launch, start, sums_in, triton_type
from gnnbench.backends.cuda._tile import power_of_two
from gnnbench.backends.cuda.attention_backward import grad_key_kernel, grad_query_kernel
from gnnbench.backends.cuda.attention_edges import edge_kernel
from gnnbench.backends.cuda.attention_forward import attention_kernel
from gnnbench.backends.cuda.attention_nodes import through_att, with_delta
from gnnbench.backends.cuda.attention_tiles import How, TilingKernels
from gnnbench.backends.cuda.plan import Segments, hubs, rows
from gnnbench.backends.cuda.spmm import sum_kernel
from gnnbench.graph import Graph
from gnnbench.ops.dropout import Dropout

SUM_CHANNELS = 256  # of a program that adds up slices

Tensors = tuple["Tensor | None", ...]


class Inputs(NamedTuple):
    """What the kernels of every family are given."""

    family: str  # "gat", "gatv2", "dot"; "given" and "slices": scores and stats of slices in place of keys
    query: Tensor | None
    key: Tensor
    value: Tensor
    att: Tensor | None
    slope: float
    dropout: Dropout | None

    @property
    def given(self) -> tuple[Tensor | None, ...]:
        """Those of the arguments that are tensors, with dropout's seed."""
        seed = None if self.dropout is None else self.dropout.seed
        return self.query, self.key, self.value, self.att, seed

    @property
    def drop(self) -> tuple[int, int]:
        """Dropout's threshold, and the bits of its scale."""
        if self.dropout is None:
            return 0, 0
        (bits,) = struct.unpack("q", struct.pack("d", self.dropout.scale))
        return self.dropout.threshold, bits

    @property
    def constants(self) -> dict[str, Any]:
        """Sizes; a number for GAT counts as one channel."""
        width = self.key.size(2) if self.key.dim() == 3 else 1
        sizes = {"H": self.value.size(1), "C": width, "D": self.value.size(2)}
        blocks = {f"BLOCK_{name}": power_of_two(size) for name, size in sizes.items()}
        sums = triton_type(sums_in(self.value.dtype))
        return {"FAMILY": self.family, "SLOPE": self.slope, "ACC": sums, **sizes, **blocks}


Merge = Callable[[How, Segments, Tensors, Tensors], None]  # of slices' results into rows'


class AttentionKernels(TilingKernels):
    """GAT, GATv2 and dot attention, forward and backward."""

    def unsupported(self, op: str, graph: Graph, *tensors: Tensor | None) -> list[str]:
        reasons = super().unsupported(op, graph, *tensors)
        if op.endswith("_attention") and not all(tensor is None or all(tensor.shape[1:]) for tensor in tensors):
            reasons.append("a tensor has no heads or no channels; cuda needs at least one of each")
        return reasons

    def gat_attention(
        self,
        graph: Graph,
        x: Tensor,
        score_src: Tensor,
        score_dst: Tensor,
        negative_slope: float,
        dropout: Dropout | None,
        keep: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        query, key, value = score_dst.contiguous(), score_src.contiguous(), x.contiguous()
        inputs = Inputs("gat", query, key, value, None, negative_slope, dropout)
        out, stats, *kept = self._forward("gat_attention", graph, inputs, keep)
        return out, stats, *(kept if keep else (out.new_empty(0), out.new_empty(0)))

    def gat_attention_backward(
        self,
        graph: Graph,
        x: Tensor,
        score_src: Tensor,
        score_dst: Tensor,
        negative_slope: float,
        dropout: Dropout | None,
        out: Tensor,
        stats: Tensor,
        out_positive: Tensor,
        alpha_positive: Tensor,
        grad_out: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = score_dst.contiguous(), score_src.contiguous(), x.contiguous()
        inputs = Inputs("gat", query, key, value, None, negative_slope, dropout)
        grad_out, grad_score_dst = grad_out.contiguous(), torch.empty_like(query)
        positive = out_positive, alpha_positive, grad_score_dst
        node = with_delta(stats, out, grad_out, *positive, negative_slope)
        op, passes = "gat_attention_backward", [graph.transpose]
        terms = node, self._by_edge(op, graph, inputs, passes, node, grad_out), grad_out
        grad_score_src, grad_x = self._grad_key(op, graph, inputs, *terms)
        return grad_x, grad_score_src, grad_score_dst

    def gatv2_attention(
        self,
        graph: Graph,
        x_src: Tensor,
        x_dst: Tensor,
        att: Tensor,
        negative_slope: float,
        dropout: Dropout | None,
    ) -> tuple[Tensor, Tensor]:
        x_src, x_dst, att = x_src.contiguous(), x_dst.contiguous(), att.contiguous()
        inputs = Inputs("gatv2", x_dst, x_src, x_src, att, negative_slope, dropout)
        out, stats = self._forward("gatv2_attention", graph, inputs)
        return out, stats

    def gatv2_attention_backward(
        self,
        graph: Graph,
        x_src: Tensor,
        x_dst: Tensor,
        att: Tensor,
        negative_slope: float,
        dropout: Dropout | None,
        out: Tensor,
        stats: Tensor,
        grad_out: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        x_src, x_dst, att = x_src.contiguous(), x_dst.contiguous(), att.contiguous()
        inputs = Inputs("gatv2", x_dst, x_src, x_src, att, negative_slope, dropout)
        op, grad_out = "gatv2_attention_backward", grad_out.contiguous()
        node, passes = with_delta(stats, out, grad_out), [graph, graph.transpose]
        terms = node, self._by_edge(op, graph, inputs, passes, node, grad_out), grad_out
        grad_dst = self._grad_query(op, graph, inputs, x_dst, *terms)
        att_dst = through_att(x_dst, att, grad_dst)
        grad_src, grad_value = self._grad_key(op, graph, inputs, *terms)
        att_src = through_att(x_src, att, grad_src, grad_value)
        return grad_src, grad_dst, (att_dst + att_src).to(att.dtype)

    def dot_attention(
        self, graph: Graph, query: Tensor, key: Tensor, value: Tensor, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        inputs = Inputs("dot", query, key, value, None, 1.0, dropout)
        out, stats = self._forward("dot_attention", graph, inputs)
        return out, stats

    def dot_attention_backward(
        self,
        graph: Graph,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dropout: Dropout | None,
        out: Tensor,
        stats: Tensor,
        grad_out: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        inputs = Inputs("dot", query, key, value, None, 1.0, dropout)
        op, grad_out = "dot_attention_backward", grad_out.contiguous()
        node, passes = with_delta(stats, out, grad_out), [graph, graph.transpose]
        terms = node, self._by_edge(op, graph, inputs, passes, node, grad_out), grad_out
        grad = self._grad_query(op, graph, inputs, query, *terms)
        return grad, *self._grad_key(op, graph, inputs, *terms)

    def _forward(self, op: str, graph: Graph, inputs: Inputs, keep: bool = False) -> tuple[Tensor, ...]:
        """out and stats, and if `keep` what both owe to positive scores."""
        value, how = inputs.value, self._how(op, graph, inputs)
        out = value.new_empty(graph.num_rows, *value.shape[1:], dtype=sums_in(value.dtype))
        stats = out.new_empty(*out.shape[:2], 2)
        kept = (torch.empty_like(out), out.new_empty(out.shape[:2])) if keep else (None, None)
        if how.by_edge:
            scores = out.new_empty(graph.num_edges, value.size(1))
            _over_edges(graph, inputs, how, None, None, scores)
            inputs = inputs._replace(family="given", query=None, key=scores, att=None)
        _over_rows(attention_kernel, graph, how, inputs, (graph.col, *inputs.given), (out, stats, *kept), _mix)
        return out, stats, *(tensor for tensor in kept if tensor is not None)

    def _by_edge(
        self, op: str, graph: Graph, inputs: Inputs, passes: list[Graph], node: Tensor, grad_out: Tensor
    ) -> Tensor | None:
        """[E, H, 2]: alpha after dropout and the gradient of the score, if one of the passes wants them."""
        wanted = [how for how in (self._how(op, on, inputs) for on in passes) if how.by_edge]
        if not wanted:
            return None
        found = node.new_empty(graph.num_edges, node.size(1), 2)
        _over_edges(graph, inputs, wanted[0], node, grad_out, found)
        return found

    def _grad_query(
        self,
        op: str,
        graph: Graph,
        inputs: Inputs,
        query: Tensor,
        node: Tensor,
        edges: Tensor | None,
        grad_out: Tensor,
    ) -> Tensor:
        """The gradient of query, short of GATv2's `att`."""
        how, grad = self._how(op, graph, inputs), torch.empty_like(query)
        tensors = graph.col, *inputs.given, node, edges if how.by_edge else None, grad_out
        _over_rows(grad_query_kernel, graph, how, inputs, tensors, (grad,), _add)
        return grad

    def _grad_key(
        self, op: str, graph: Graph, inputs: Inputs, node: Tensor, edges: Tensor | None, grad_out: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradients of key and value, for GATv2 short of `att` and of what goes through the key."""
        transpose = graph.transpose
        how = self._how(op, transpose, inputs)
        perm = graph.perm if how.by_edge or inputs.dropout is not None else None
        grads = torch.empty_like(inputs.key), torch.empty_like(inputs.value)
        tensors = transpose.col, perm, *inputs.given, node, edges if how.by_edge else None, grad_out
        _over_rows(grad_key_kernel, transpose, how, inputs, tensors, grads, _add)
        return grads

    def _how(self, op: str, graph: Graph, inputs: Inputs) -> How:
        sizes = inputs.constants
        return self.how(op, graph, sizes["H"], sizes["C"], sizes["D"], inputs.value.dtype)


def _over_rows(
    kernel: Any, graph: Graph, how: How, inputs: Inputs, tensors: Tensors, results: Tensors, merge: Merge
) -> None:
    """Start `kernel` on every row, but on the slices of those that are too long, which `merge` puts together."""
    _start(kernel, how, inputs, rows(graph, how.longest), False, *tensors, *results)
    if cut := hubs(graph, how.longest):
        partial = tuple(tensor if tensor is None else _for(cut.slices, tensor) for tensor in results)
        _start(kernel, how, inputs, cut.slices, True, *tensors, *partial)
        merge(how, cut.rows, partial, results)


def _for(segments: Segments, result: Tensor) -> Tensor:
    """What `result` is for rows, of segments."""
    return result.new_empty(segments.count, *result.shape[1:], dtype=sums_in(result.dtype))


def _mix(how: How, slices: Segments, partial: Tensors, results: Tensors) -> None:
    """Slices are mixed as edges are, by a softmax, where each counts as the sum of its own edges' terms."""
    mixed, sums, *mixed_positive = partial
    out, stats, *kept = results
    for value, result in zip([mixed, *mixed_positive], [out, *kept], strict=True):
        if value is not None and sums is not None:
            inputs = Inputs("slices", None, sums, value.view(*sums.shape[:2], -1), None, 1.0, None)
            _start(attention_kernel, how, inputs, slices, False, None, *inputs.given, result, stats, None, None)


def _add(how: How, slices: Segments, partial: Tensors, results: Tensors) -> None:
    """Gradients of slices are added up."""
    for parts, result in zip(partial, results, strict=True):
        if parts is not None:
            width = prod(parts.shape[1:])
            block = min(power_of_two(width), SUM_CHANNELS)
            sizes = {"C": width, "BLOCK_C": block, "H": 1, "BLOCK_S": 1, "BLOCK_E": 1, "BLOCK_H": 1}
            sums = {"MEAN": False, "ACC": triton_type(parts.dtype), "num_warps": 1}
            grid = slices.count, -(-width // block)
            launch(sum_kernel, grid, slices, slices.begin, None, None, parts, result, **sizes, **sums)


def _over_edges(
    graph: Graph, inputs: Inputs, how: How, node: Tensor | None, grad_out: Tensor | None, found: Tensor
) -> None:
    """Start `edge_kernel`; as many edges to a program as of `how`."""
    constants, units = inputs.constants, how.units * how.edges
    grid = (-(-graph.num_edges * constants["BLOCK_H"] // units),)
    tensors = graph.row, graph.col, *inputs.given, node, grad_out, found, graph.num_edges
    start(edge_kernel, grid, *tensors, *inputs.drop, **constants, UNITS=units, num_warps=how.num_warps)


def _start(
    kernel: Any, how: How, inputs: Inputs, segments: Segments, partial: bool, *tensors: Tensor | None
) -> None:
    """Start one of the kernels over edges, whose results are of segments if `partial`, else of rows."""
    constants = inputs.constants
    grid = (-(-segments.count * constants["BLOCK_H"] // how.units),)
    blocks = {"UNITS": how.units, "EDGES": how.edges, "PARTIAL": partial, "num_warps": how.num_warps}
    launch(kernel, grid, segments, *tensors, *inputs.drop, **constants, **blocks)
