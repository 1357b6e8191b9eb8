"""Scores of edges and their softmax, FusedMM, segments of edges, and Programs, by modules of `cython_kernels/`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import computes, csr
from gnnbench.backends.isplib.choices import ChoosingKernels
from gnnbench.backends.isplib.workspace import in_huge_pages
from gnnbench.graph import Graph
from gnnbench.ops.kernels import EDGE_FNS
from gnnbench.ops.program import Program

native_edge, native_fusedmm, native_segment, native_program = map(
    _compiled.load, ("edge", "fusedmm", "segment", "program")
)


class EdgeKernels(ChoosingKernels):
    """Passes over the edges of every row, of which FusedMM and Programs keep nothing per edge."""

    most_heads: ClassVar[int] = native_edge.MAX_HEADS if native_edge else 0

    def sddmm(self, graph: Graph, a: Tensor, b: Tensor) -> Tensor:
        a, b = a.contiguous(), b.contiguous()
        heads, width = (1, a.size(1)) if a.dim() == 2 else a.shape[1:]
        choice = self.chosen("sddmm", graph, heads * width, a.dtype, heads)
        # Nothing is written where there are no channels to sum over.
        new = torch.empty if width else torch.zeros
        out = new(graph.num_edges, *a.shape[1:-1], dtype=a.dtype)
        sizes = {**csr(graph), "heads": heads, "width": width, "ahead": choice["prefetch"]}
        native_edge.sddmm(self.isa, choice["threads"], a=a, b=b, out=out, **sizes)
        return out

    def edge_softmax(self, graph: Graph, score: Tensor) -> Tensor:
        score = score.contiguous()
        alpha = torch.empty_like(score)
        sizes = {"rowptr": graph.rowptr, "rows": graph.num_rows, "heads": score.size(1)}
        native_edge.softmax(self.isa, self.threads, score=score, out=alpha, **sizes)
        return alpha

    def edge_softmax_backward(self, graph: Graph, alpha: Tensor, grad_alpha: Tensor) -> Tensor:
        alpha, grad_alpha = alpha.contiguous(), grad_alpha.contiguous()
        grad_score = torch.empty_like(alpha)
        sizes = {"rowptr": graph.rowptr, "rows": graph.num_rows, "heads": alpha.size(1)}
        native_edge.softmax_backward(self.isa, self.threads, score=alpha, grad=grad_alpha, out=grad_score, **sizes)
        return grad_score

    def fusedmm(self, graph: Graph, x: Tensor, y: Tensor, edge_fn: str) -> Tensor:
        return self._fused(graph, x, y, edge_fn)

    def fusedmm_grad_x(self, graph: Graph, x: Tensor, y: Tensor, edge_fn: str, grad_out: Tensor) -> Tensor:
        return self._fused(graph, x, y, edge_fn, my_grad=grad_out.contiguous())

    def fusedmm_grad_y(self, graph: Graph, x: Tensor, y: Tensor, edge_fn: str, grad_out: Tensor) -> Tensor:
        return self._fused(graph.transpose, y, x, edge_fn, their_grad=grad_out.contiguous())

    def _fused(self, graph: Graph, mine: Tensor, theirs: Tensor, edge_fn: str, **grad: Tensor) -> Tensor:
        """A pass over the rows of `graph`, with the gradient of the output at one of the ends."""
        mine, theirs = mine.contiguous(), theirs.contiguous()
        out = torch.empty_like(mine)
        heads, width = (1, mine.size(1)) if mine.dim() == 2 else mine.shape[1:]
        if out.numel():
            tensors = {"mine": mine, "theirs": theirs, **grad, "out": out}
            sizes = {**csr(graph), "heads": heads, "width": width}
            native_fusedmm.fusedmm(self.isa, self.threads, **tensors, **sizes, fn=list(EDGE_FNS).index(edge_fn))
        return out

    def segment(self, rowptr: Tensor, x: Tensor, reduce: str) -> Tensor:
        if not computes(x):
            return super().segment(rowptr, x, reduce)
        out = torch.empty(len(rowptr) - 1, x.size(1), dtype=x.dtype)
        native_segment.forward(self.isa, self.threads, **_of_segments(rowptr, x, reduce), x=x, out=out)
        return out

    def segment_backward(
        self, rowptr: Tensor, grad_out: Tensor, reduce: str, x: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        if not computes(grad_out):
            return super().segment_backward(rowptr, grad_out, reduce, x, out)
        grad_x = torch.empty(int(rowptr[-1]), grad_out.size(1), dtype=grad_out.dtype)
        tensors = {"x": x, "out": out, "grad_out": grad_out, "grad_x": grad_x}
        native_segment.backward(self.isa, self.threads, **_of_segments(rowptr, grad_out, reduce), **tensors)
        return grad_x

    def gather_rows(
        self, rowptr: Tensor, col: Tensor, source: Tensor | None, destination: Tensor | None
    ) -> Tensor:
        given = [each for each in (source, destination) if each is not None]
        watched = torch.is_grad_enabled() and any(each.requires_grad for each in given)
        if watched or not computes(*given) or not (source is None or source.is_contiguous()):
            return super().gather_rows(rowptr, col, source, destination)
        shape, dtype = given[0].shape[1:], given[0].dtype
        out = in_huge_pages(torch.empty(len(col), *shape, dtype=dtype))
        destination = None if destination is None else destination.contiguous()
        sizes = {"rows": len(rowptr) - 1, "cols": 0 if source is None else len(source), "width": shape.numel()}
        fields = {"rowptr": rowptr, "col": col, "source": source, "destination": destination, "out": out}
        native_segment.gather(self.isa, self.threads, **sizes, **fields)
        return out

    def add_rows(self, out: Tensor, index: Tensor, x: Tensor) -> None:
        if not computes(out, x):
            return super().add_rows(out, index, x)
        sizes = {"rows": len(out), "edges": len(x), "width": out.size(1)}
        native_segment.add(self.isa, self.threads, **sizes, index=index, x=x, out=out)
        return None

    def program(
        self, graph: Graph, program: Program, tensors: Sequence[Tensor], edge_id: Tensor | None
    ) -> list[Tensor]:
        if not computes(*tensors) or len({each.dtype for each in tensors}) > 1:
            return super().program(graph, program, tensors, edge_id)
        rows = {"source": graph.num_cols, "destination": graph.num_rows, "edge": graph.num_edges}
        sizes = {"rows": graph.num_rows, "heads": program.heads, "width": program.width}
        leaves, sinks, outs = [], [], []
        for leaf, tensor in zip(program.leaves, tensors, strict=True):
            place = native_program.PLACES.index(leaf.place)
            leaves.append({"rows": rows[leaf.place], "width": leaf.width, "place": place, "x": tensor})
        for value, place, reduce, ties in program.sinks:
            width = program.width_of(value)
            outs.append(torch.empty(*[2] * ties, rows[place], width, dtype=tensors[0].dtype))
            number = {"place": native_program.PLACES.index(place), "ties": ties}
            number["reduce"] = native_program.REDUCTIONS.index(reduce)
            out = outs[-1].view(-1, width)
            sinks.append({"rows": rows[place], "width": width, "value": value, "out": out, **number})
        fields = {**sizes, **_code(program), "rowptr": graph.rowptr, "col": graph.col, "edge_id": edge_id}
        native_program.run(self.isa, self.threads, leaves, sinks, **fields)
        return outs


def _of_segments(rowptr: Tensor, x: Tensor, reduce: str) -> dict[str, Any]:
    sizes = {"rowptr": rowptr, "rows": len(rowptr) - 1, "width": x.size(1)}
    return {**sizes, "reduce": native_segment.REDUCTIONS.index(reduce)}


@functools.lru_cache(1024)
def _code(program: Program) -> dict[str, Any]:
    """The steps of a program as kernels read them."""
    code = [[native_program.OPS.index(op), a, b, width] for op, a, b, _, width in program.steps]
    numbers = torch.tensor([step.number for step in program.steps], dtype=torch.float64)
    return {"steps": len(code), "code": torch.tensor(code, dtype=torch.int32).view(-1, 4), "number": numbers}
