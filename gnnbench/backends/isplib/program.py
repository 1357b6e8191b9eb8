"""Programs over edges, by `cython_kernels/program.pyx`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels, computes
from gnnbench.graph import Graph
from gnnbench.ops.program import Program

native = _compiled.load("program")


class ProgramKernels(BaseKernels):
    """Steps of a program on a few edges at a time, whose registers stay in the first cache."""

    def program(
        self, graph: Graph, program: Program, tensors: Sequence[Tensor], edge_id: Tensor | None
    ) -> list[Tensor]:
        if not computes(*tensors) or len({each.dtype for each in tensors}) > 1:
            return super().program(graph, program, tensors, edge_id)
        rows = {"source": graph.num_cols, "destination": graph.num_rows, "edge": graph.num_edges}
        sizes = {"rows": graph.num_rows, "heads": program.heads, "width": program.width}
        leaves, sinks, outs = [], [], []
        for leaf, tensor in zip(program.leaves, tensors, strict=True):
            place = native.PLACES.index(leaf.place)
            leaves.append({"rows": rows[leaf.place], "width": leaf.width, "place": place, "x": tensor})
        for value, place, reduce, ties in program.sinks:
            width = program.width_of(value)
            outs.append(torch.empty(*[2] * ties, rows[place], width, dtype=tensors[0].dtype))
            number = {"place": native.PLACES.index(place), "reduce": native.REDUCTIONS.index(reduce), "ties": ties}
            out = outs[-1].view(-1, width)
            sinks.append({"rows": rows[place], "width": width, "value": value, "out": out, **number})
        fields = {**sizes, **_code(program), "rowptr": graph.rowptr, "col": graph.col, "edge_id": edge_id}
        native.run(self.isa, self.threads, leaves, sinks, **fields)
        return outs


@functools.lru_cache(1024)
def _code(program: Program) -> dict[str, Any]:
    """The steps of a program as kernels read them."""
    code = [[native.OPS.index(op), a, b, width] for op, a, b, _, width in program.steps]
    numbers = torch.tensor([step.number for step in program.steps], dtype=torch.float64)
    return {"steps": len(code), "code": torch.tensor(code, dtype=torch.int32).view(-1, 4), "number": numbers}
