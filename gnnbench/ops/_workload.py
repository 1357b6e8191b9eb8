"""Inputs that an op is checked, timed and tuned on, which every op declares beside itself in `WORKLOADS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

Direction = Literal["forward", "backward"]
Spent = Mapping[Direction, int]


@dataclass(frozen=True)
class Workload:
    """An op as `gnnbench bench` and `gnnbench tune` run it.

    Dimensions are letters: N destinations, M sources, E edges, H heads, C and D channels of a head; for an op that
    takes no graph, those of `sizes` and `fixed`.

    Attributes:
        inputs: name -> dimensions such as "NHC", drawn from a normal distribution.
        out: dimensions of the output.
        call: (kernels, graph, **inputs) -> output, differentiable; the graph is None for one that has `sizes`.
        sizes: letter -> what it counts, in the order of a shape such as 820x300x600; for an op without a graph.
        shapes: such shapes, which are run unless others are asked for.
        fixed: letter -> a size that all shapes share.
        integers: inputs that are whole numbers instead -> what they are below.
        weights: inputs that are left out unless edges have values, and get no gradient.
        gathers: rows of `width` floats that a direction must fetch for every edge: one for each operand of a pass
            over the edges that belongs to the other end.
        products: multiplications and additions over the product of all `sizes`, where these bound the time.
        saved: inputs that the backward needs; None for all.
        names_edges: whether the output comes with the edge, int32, that each of its numbers is from.
        scaled: whether scores are sums over channels, so that inputs have to be scaled to keep them moderate.
        kernel: (kernels, graph, *inputs) -> the results of the kernel by itself, for ops that have choices.
        backward: (kernels, graph, inputs, the results of `kernel`, grad_out) -> the same of its backward.
        peers: name -> (**inputs) -> output, in plain torch.
        random: why results of peers cannot be compared with ours; empty if they can.
    """

    inputs: dict[str, str]
    out: str
    call: Callable[..., Tensor]
    sizes: dict[str, str] = field(default_factory=dict)
    shapes: tuple[str, ...] = ()
    fixed: dict[str, int] = field(default_factory=dict)
    integers: dict[str, int] = field(default_factory=dict)
    weights: tuple[str, ...] = ()
    gathers: Spent = field(default_factory=dict)
    products: Spent = field(default_factory=dict)
    saved: tuple[str, ...] | None = None
    names_edges: bool = False
    scaled: bool = False
    kernel: Callable[..., Any] | None = None
    backward: Callable[..., Any] | None = None
    peers: dict[str, Callable[..., Tensor]] = field(default_factory=dict)
    random: str = ""

    @property
    def grads(self) -> list[str]:
        """Inputs whose gradients the backward computes."""
        return [name for name in self.inputs if name not in (*self.integers, *self.weights)]

    @property
    def has_heads(self) -> bool:
        return any("H" in dims for dims in self.inputs.values())

    @property
    def has_width(self) -> bool:
        """Return whether it takes a width other than the number of heads."""
        return any("C" in dims for dims in self.inputs.values())
