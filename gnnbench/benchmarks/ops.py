"""The ops that can be benchmarked: their inputs, how they run on any kernels, and the memory traffic they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from gnnbench.graph import Graph
from gnnbench.ops import attention, edge, fusedmm, spmm
from gnnbench.ops.families import FAMILIES, Family
from gnnbench.ops.kernels import Kernels

Direction = Literal["forward", "backward"]
Over = Literal["sources", "destinations", "edges", "nothing"]  # what the first dimension of a tensor runs over
SLOPE = 0.2  # of leaky ReLUs
Shapes = dict[str, tuple[Over, tuple[int, ...]]]


@dataclass(frozen=True)
class Op:
    """One op.

    Attributes:
        shapes: (heads, channels per head) -> what each input runs over, and its other dimensions.
        call: (kernels, graph, **inputs) -> output, differentiable.
        gathers: rows of `width` floats that forward and backward must fetch for every edge: one for each
            operand of a pass over the edges that belongs to the other end.
        grads: inputs whose gradients the backward computes.
        kernel: (kernels, graph, *inputs) -> the results of the kernel by itself, for ops that have choices.
        backward: (kernels, graph, inputs, the results of `kernel`, grad_out) -> the same of its backward.
        saved: inputs that the backward needs; None for all.
        over: what the output runs over.
        has_heads, has_width: whether it takes heads, and a width other than the number of heads.
        scaled: whether scores are sums over channels, so that inputs have to be scaled to keep them moderate.
    """

    shapes: Callable[[int, int], Shapes]
    call: Callable[..., Tensor]
    gathers: dict[Direction, int]
    grads: tuple[str, ...]
    kernel: Callable[..., Any] | None = None
    backward: Callable[..., Any] | None = None
    saved: tuple[str, ...] | None = None
    over: Over = "destinations"
    has_heads: bool = True
    has_width: bool = True
    scaled: bool = False


def _aggregation(reduce: str, backward_gathers: int, kernel: Callable[..., Any]) -> Op:
    def call(kernels: Kernels, graph: Graph, x: Tensor, value: Tensor | None = None) -> Tensor:
        return spmm.spmm(kernels, graph, x, value, reduce)

    return Op(
        shapes=lambda _, channels: {"x": ("sources", (channels,)), "value": ("edges", ())},
        call=call,
        gathers={"forward": 1, "backward": backward_gathers},
        grads=("x",),
        kernel=kernel,
        saved=("value",),
        has_heads=False,
    )


def _product(first: str, second: str, **rest: Any) -> Op:
    """An op on features of destinations and of sources."""
    return Op(
        shapes=lambda heads, channels: {
            first: ("destinations", (heads, channels)),
            second: ("sources", (heads, channels)),
        },
        grads=(first, second),
        **rest,
    )


def _attention(family: Family) -> Op:
    overs: dict[str, Over] = {"N": "destinations", "M": "sources"}

    def shapes(heads: int, channels: int) -> Shapes:
        sizes = {"H": heads, "C": channels, "D": channels}
        return {
            name: (overs.get(dims[0], "nothing"), tuple(sizes[dim] for dim in dims if dim in sizes))
            for name, dims in family.inputs.items()
        }

    def call(kernels: Kernels, graph: Graph, **inputs: Tensor) -> Tensor:
        return attention.attention(kernels, graph, family.name, tuple(inputs.values()))

    def kernel(kernels: Kernels, graph: Graph, *inputs: Tensor) -> tuple[Tensor, ...]:
        return kernels.attention(graph, family, inputs, SLOPE, None, family.keeps_positive)

    def backward(kernels: Kernels, graph: Graph, *rest: Any) -> tuple[Tensor, ...]:
        inputs, kept, grad_out = rest
        return kernels.attention_backward(graph, family, inputs, SLOPE, None, kept, grad_out)

    forward_gathers, backward_gathers = family.gathers
    return Op(
        shapes=shapes,
        call=call,
        gathers={"forward": forward_gathers, "backward": backward_gathers},
        grads=tuple(family.inputs),
        kernel=kernel,
        backward=backward,
        scaled="C" in family.inputs["query"],
    )


OPS = {
    "spmm": _aggregation("sum", 1, lambda kernels, graph, x: kernels.spmm(graph, x, None, "sum")),
    "spmm_max": _aggregation("max", 0, lambda kernels, graph, x: kernels.spmm_max(graph, x, None, "max")),
    "sddmm": _product(
        "a",
        "b",
        call=edge.sddmm,
        gathers={"forward": 1, "backward": 2},
        kernel=lambda kernels, graph, a, b: kernels.sddmm(graph, a, b),
        over="edges",
    ),
    "edge_softmax": Op(
        shapes=lambda heads, _: {"score": ("edges", (heads,))},
        call=edge.edge_softmax,
        gathers={"forward": 0, "backward": 0},
        grads=("score",),
        over="edges",
        has_width=False,
    ),
    "fusedmm": _product("x", "y", call=fusedmm.fusedmm, gathers={"forward": 1, "backward": 3}, scaled=True),
    **{family.op: _attention(family) for family in FAMILIES.values()},
}


class Case:
    """An op on a graph with inputs drawn from a fixed seed, on the graph's device.

    Attributes:
        width: channels of all heads together.
        dtype: of the inputs.
        inputs: by name; those in `op.grads` require gradients.
        over: what the first dimension of each input runs over.
        grad_out: what the backward starts from, shaped as the output.
    """

    def __init__(
        self,
        name: str,
        graph: Graph,
        width: int,
        heads: int = 1,
        weighted: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.name, self.op, self.graph, self.width, self.heads = name, OPS[name], graph, width, heads
        self.dtype = dtype
        channels = width // heads
        shapes = self.op.shapes(heads, channels)
        if "value" in shapes and not (weighted or self.op.has_heads):
            del shapes["value"]
        generator = torch.Generator(graph.device).manual_seed(0)
        drawn: dict[str, Any] = {"generator": generator, "device": graph.device}
        scale = channels**-0.25 if self.op.scaled else 1.0
        self.over = {input_: over for input_, (over, _) in shapes.items()}
        self.inputs = {
            input_: torch.randn(*self._size(over), *rest, **drawn).mul_(scale).to(dtype)
            for input_, (over, rest) in shapes.items()
        }
        for input_ in self.op.grads:
            self.inputs[input_].requires_grad_()
        per_head = (heads,) if self.op.has_heads else ()
        per_channel = (channels,) if self.op.over == "destinations" else ()
        self.grad_out = torch.randn(*self._size(self.op.over), *per_head, *per_channel, **drawn).to(dtype)

    def _size(self, over: Over) -> tuple[int, ...]:
        graph = self.graph
        sizes = {"sources": graph.num_cols, "destinations": graph.num_rows, "edges": graph.num_edges}
        return (sizes[over],) if over in sizes else ()

    @property
    def gathered_bytes(self) -> int:
        """One row of `width` numbers for every edge: what effective bandwidths count."""
        return self.graph.num_edges * self.width * self.dtype.itemsize

    def compulsory(self, direction: Direction) -> tuple[int, int]:
        """Bytes that must cross the memory bus, every tensor once, and bytes gathered from the caches."""
        op, graph = self.op, self.graph
        traffic = self.grad_out.nbytes + graph.rowptr.nbytes  # the output, or its gradient
        traffic += graph.col.nbytes if op.gathers[direction] else 0
        if self.name == "spmm_max":
            traffic += 4 * self.grad_out.numel()  # arg_out
        if direction == "forward":
            traffic += sum(tensor.nbytes for tensor in self.inputs.values())
        else:
            kept = self.inputs if op.saved is None else set(op.saved) & self.inputs.keys()
            traffic += sum(self.inputs[name].nbytes for name in (*kept, *op.grads))
        return traffic, op.gathers[direction] * self.gathered_bytes
