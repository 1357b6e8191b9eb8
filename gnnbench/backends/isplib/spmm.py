"""Aggregation, by `cython_kernels/spmm.pyx`: row by row, or over blocks of columns that fit the cache."""

from __future__ import annotations

import weakref
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled, choices
from gnnbench.backends.isplib._base import csr
from gnnbench.backends.isplib.workspace import MAPPED, in_huge_pages, workspace
from gnnbench.graph import Graph
from gnnbench.graph.cache import Stamp, stamp
from gnnbench.ops.kernels import Choice, Summed, choice_key

native = _compiled.load("spmm")

INPUTS = "x", "value", "of_source", "scale", "bias"  # of sums, as fields of their kernels
IS_MEAN = {"sum": False, "mean": True}
KNOWN = 16  # sums over a graph that can run again at once, the latest
GROUPS = {"spmm": 4, "spmm_max": 1}  # edges that a loop takes at once


class Blocks(NamedTuple):
    """A graph's edges by blocks of 2^shift columns, then by row (see `cython_kernels/spmm_blocked.inc`)."""

    start: Tensor  # [blocks, N + 1] int32
    local: Tensor  # [groups, edges of a group] uint16
    shift: int


class Ordered(NamedTuple):
    """Weights in the order of `Blocks`, kept for those that do not change, such as a GCN's.

    What is kept is replaced and never written to, for other threads may be reading it.
    """

    source: weakref.ref[Tensor]
    state: Stamp  # of the source
    value: Tensor  # as `Blocks.local`
    finite: bool


class Way(NamedTuple):
    """How aggregations of features of one shape go over a graph, until that is tuned or threads change.

    Attributes:
        key, tuned: where in the graph's cache a tuned choice is, and what was there.
        most: threads that there were.
        choice, threads: what runs, and the threads of a kernel that goes row by row.
        shape: of the result, as plain numbers, which torch reads in half the time of its own `Size`.
        width: channels of all heads together.
        fields: of a kernel that goes row by row, but for the tensors of a call.
    """

    key: Any
    tuned: Choice | None
    most: int
    choice: Choice
    threads: int
    shape: tuple[int, ...]
    width: int
    fields: dict[str, Any]


class SpmmKernels(choices.ChoosingKernels):
    """Sum, mean, min and max over the edges of every row."""

    def plan(self, graph: Graph) -> None:
        # A copy, for another thread may add a choice meanwhile.
        kept = [(key[1], choice) for key, choice in list(graph.cache.items()) if key[0] == "choice"]
        usual = (choices.block(graph, lines * choices.LINE_BYTES) for lines in choices.PLANNED)
        planned = {("spmm", shift) for shift in usual if shift is not None}
        for op, choice in kept:
            if op in choices.TUNED and self._possible(choice, op, graph) and "shift" in choice:
                planned.add((op, int(choice["shift"])))
        for op, shift in planned:
            self._blocks(op, graph, shift)

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        return self._sum(graph, reduce, (x, value, None, None, None))

    def spmm_scaled(
        self, graph: Graph, x: Tensor, of_source: Tensor, scale: Tensor, bias: Tensor | None
    ) -> Tensor:
        if self.gather != "float32":
            return super().spmm_scaled(graph, x, of_source, scale, bias)
        return self._sum(graph, "sum", (x, None, of_source, scale, bias))

    def spmm_again(self, graph: Graph, reduce: str, inputs: Summed) -> Tensor | None:
        known, mean = graph.cache.get("sums"), IS_MEAN.get(reduce)
        if known is None or mean is None or self.gather != "float32":
            return None
        graph.check_unchanged()
        return native.again(known, graph.whole.cache, self.isa, self.threads, mean, inputs)

    def _sum(self, graph: Graph, reduce: str, inputs: Summed) -> Tensor:
        """Sum over blocks or row by row, which `spmm_again` knows from then on."""
        if (known := self.spmm_again(graph, reduce, inputs)) is not None:
            return known
        given: dict[str, Any] = {
            name: None if each is None else each.contiguous() for name, each in zip(INPUTS, inputs, strict=True)
        }
        x, value = given["x"], given["value"]
        heads = 1 if value is None or value.dim() == 1 else value.size(1)
        way = self._way("spmm", graph, x, heads)
        bf16 = self.gather == "bf16" and heads == 1 and choices.worth_bf16(graph, x, way.width)
        out = in_huge_pages(x.new_empty(*way.shape))
        given |= {"out": out, "mean": reduce == "mean"}
        if way.choice["algorithm"] == "blocked" and heads == 1:
            blocks = self._blocks("spmm", graph, int(way.choice["shift"]))
            ordered, _ = self._ordered(graph, blocks, value)
            lines = 2 * _packed(graph, blocks), graph.num_rows * (4 if bf16 else 2)
            with workspace(graph, *lines) as (packed, sums):
                plan = {**_plan(graph, blocks), "ordered": ordered, "packed": packed, "sums": sums}
                native.blocked_sum(self.isa, self.threads, **given, **plan, width=way.width, bf16=bf16)
        elif bf16:
            with workspace(graph, graph.num_cols * -(-way.width // choices.BF16_TILE)) as (packed,):
                native.bf16_sum(self.isa, way.threads, **given, **way.fields, packed=packed)
        else:
            new = native.sum(way, self.isa, **given, **way.fields)
            if x.dim() == 2 and x.numel() and out.nbytes < MAPPED:
                graph.cache["sums"] = [*graph.cache.get("sums", ()), new][-KNOWN:]
        return out

    def spmm_max(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> tuple[Tensor, Tensor]:
        x, value = x.contiguous(), None if value is None else value.contiguous()
        way = self._way("spmm_max", graph, x)
        out = in_huge_pages(x.new_empty(*way.shape))
        arg_out = in_huge_pages(torch.empty(*way.shape, dtype=torch.int32))
        given = {"value": value, "x": x, "out": out, "arg_out": arg_out, "min": reduce == "min"}
        if way.choice["algorithm"] == "blocked":
            blocks = self._blocks("spmm_max", graph, int(way.choice["shift"]))
            ordered, finite = self._ordered(graph, blocks, value)
            lines = 2 * _packed(graph, blocks), 2 * graph.num_rows, 2 * graph.num_rows, -(-graph.num_rows // 16)
            with workspace(graph, *lines) as (packed, best, origin, seen):
                room = {"packed": packed, "sums": best, "origin": origin, "seen": seen, "finite_value": finite}
                plan = {**_plan(graph, blocks), "ordered": ordered}
                native.blocked_extremum(self.isa, self.threads, **given, **plan, **room, width=way.width)
        else:
            native.extremum(self.isa, way.threads, **given, **way.fields)
        return out, arg_out

    def spmm_max_backward(self, graph: Graph, arg_out: Tensor, grad_out: Tensor, value: Tensor | None) -> Tensor:
        grad_out, value = grad_out.contiguous(), None if value is None else value.contiguous()
        grad_x = in_huge_pages(torch.empty(graph.num_cols, grad_out.size(1), dtype=grad_out.dtype)).zero_()
        tensors = {"col": graph.col, "value": value, "arg_out": arg_out, "grad_out": grad_out, "grad_x": grad_x}
        sizes = {"rows": graph.num_rows, "cols": graph.num_cols, "edges": graph.num_edges}
        native.extremum_backward(self.threads, **tensors, **sizes, width=grad_x.size(1))
        return grad_x

    def _way(self, op: str, graph: Graph, x: Tensor, heads: int = 1) -> Way:
        """Find how features of this shape go; kept with the graph, as choosing takes as long as a small sum."""
        form = "way", op, x.shape, x.dtype, heads
        way: Way | None = graph.cache.get(form)
        if way is None or way.tuned is not graph.whole.cache.get(way.key) or way.most != self.threads:
            shape, most = (graph.num_rows, *x.shape[1:]), self.threads
            width = prod(shape[1:])
            choice, key = self.chosen(op, graph, width, x.dtype), choice_key(op, width, x.dtype)
            # A row kernel also runs where blocks do not serve.
            fields = csr(graph) | {"heads": heads, "width": width // max(heads, 1)}
            fields["ahead"] = choice.get("prefetch", 16)
            threads = int(choice.get("threads", most))
            way = Way(key, graph.whole.cache.get(key), most, choice, threads, shape, width, fields)
            graph.cache[form] = way
        return way

    def _blocks(self, op: str, graph: Graph, shift: int) -> Blocks:
        """The plan for blocks of 2^shift columns, made once."""

        def make() -> Blocks:
            start = torch.zeros(choices.blocks(graph, shift), graph.num_rows + 1, dtype=torch.int32)
            blocks = Blocks(start, torch.empty(0, GROUPS[op], dtype=torch.uint16), shift)
            groups = native.count(self.threads, **_plan(graph, blocks))
            blocks = blocks._replace(local=in_huge_pages(blocks.local.new_empty(groups, GROUPS[op])))
            native.place(self.threads, **_plan(graph, blocks))
            return blocks

        return graph.once(("blocks", op, shift), make)

    def _ordered(self, graph: Graph, blocks: Blocks, value: Tensor | None) -> tuple[Tensor | None, bool]:
        """Weights in the order of `blocks`, of the last call if they are the same; whether all are finite."""
        if value is None:
            return None, True
        key, state = ("ordered", *blocks.local.shape, blocks.shift), stamp(value)
        kept: Ordered | None = graph.cache.get(key)
        if kept is not None and kept.source() is value and kept.state == state:
            return kept.value, kept.finite
        ordered = in_huge_pages(torch.empty(blocks.local.shape, dtype=value.dtype))
        finite = native.order(self.isa, self.threads, **_plan(graph, blocks), value=value, ordered=ordered)
        if state is not None:
            graph.cache[key] = Ordered(weakref.ref(value), state, ordered, finite)
        return ordered, finite


def _plan(graph: Graph, blocks: Blocks) -> dict[str, Any]:
    """The fields by which kernels take a graph in blocks."""
    groups, group = blocks.local.shape
    sizes = {"blocks": len(blocks.start), "shift": blocks.shift, "groups": groups, "group": group}
    ahead = choices.AHEAD if blocks.shift >= choices.SHIFT else 0
    return {**csr(graph), **sizes, "ahead": ahead, "start": blocks.start, "local": blocks.local}


def _packed(graph: Graph, blocks: Blocks) -> int:
    """Sources of all blocks, each of which has one of zeros."""
    return graph.num_cols + len(blocks.start)
