"""The ops that can be benchmarked, as they declare themselves, with inputs drawn and the traffic these need."""

from __future__ import annotations

import math
from typing import Any

import torch

from gnnbench import registry
from gnnbench.graph import Graph
from gnnbench.ops._workload import Direction, Workload

OPS: dict[str, Workload] = {
    op: workload
    for name in registry.names("ops")
    for op, workload in getattr(registry.find("ops", name), "WORKLOADS", {}).items()
}


class Case:
    """An op with inputs drawn from a fixed seed, on a graph and its device, or of a shape.

    Attributes:
        width: channels of all heads together; of a shape its last size.
        shape: sizes of an op that takes no graph; empty for one that does.
        dtype: of the inputs.
        inputs: by name; those in `op.grads` require gradients.
        dims: dimensions of each input, as letters.
        grad_out: what the backward starts from, shaped as the output.
    """

    def __init__(
        self,
        name: str,
        graph: Graph | None,
        width: int,
        heads: int = 1,
        weighted: bool = False,
        dtype: torch.dtype = torch.float32,
        shape: tuple[int, ...] = (),
        device: torch.device | None = None,
    ) -> None:
        self.name, self.op, self.dtype = name, OPS[name], dtype
        self.width, self.heads, self.shape = width, heads, shape
        self._graph = graph
        channels = width // heads
        sizes = {**dict(zip(self.op.sizes, shape, strict=True)), **self.op.fixed, "H": heads}
        if graph is not None:
            sizes |= {"N": graph.num_rows, "M": graph.num_cols, "E": graph.num_edges, "C": channels, "D": channels}
            device = graph.device
        generator = torch.Generator(device or "cpu").manual_seed(0)
        drawn: dict[str, Any] = {"generator": generator, "device": device}
        scale = channels**-0.25 if self.op.scaled else 1.0
        left_out = () if weighted else self.op.weights
        self.dims = {input_: dims for input_, dims in self.op.inputs.items() if input_ not in left_out}
        self.inputs = {}
        for input_, dims in self.dims.items():
            size = [sizes[dim] for dim in dims]
            if input_ in self.op.integers:
                self.inputs[input_] = torch.randint(self.op.integers[input_], size, **drawn)
            else:
                self.inputs[input_] = torch.randn(size, **drawn).mul_(scale).to(dtype)
        for input_ in self.op.grads:
            self.inputs[input_].requires_grad_()
        self.grad_out = torch.randn([sizes[dim] for dim in self.op.out], **drawn).to(dtype)

    @property
    def graph(self) -> Graph:
        """The graph of an op that takes one."""
        assert self._graph is not None
        return self._graph

    @property
    def label(self) -> str:
        """Its sizes, in words."""
        heads = f", {self.heads} heads" if self.heads > 1 else ""
        return "x".join(map(str, self.shape)) or f"width {self.width}{heads}"

    @property
    def gathered_bytes(self) -> int:
        """One row of `width` numbers for every edge: what effective bandwidths count."""
        return self._graph.num_edges * self.width * self.dtype.itemsize if self._graph else 0

    def flop(self, direction: Direction) -> int:
        """Multiplications and additions, where these can bound the time; else 0."""
        return self.op.products.get(direction, 0) * math.prod(self.shape)

    def compulsory(self, direction: Direction) -> tuple[int, int]:
        """Bytes that must cross the memory bus, every tensor once, and bytes gathered from the caches."""
        op, gathers = self.op, self.op.gathers.get(direction, 0)
        traffic = self.grad_out.nbytes  # the output, or its gradient
        if self._graph:
            traffic += self._graph.rowptr.nbytes + (self._graph.col.nbytes if gathers else 0)
        if op.names_edges:
            traffic += 4 * self.grad_out.numel()
        if direction == "forward":
            traffic += sum(tensor.nbytes for tensor in self.inputs.values())
        else:
            kept = self.inputs if op.saved is None else set(op.saved) & self.inputs.keys()
            traffic += sum(self.inputs[name].nbytes for name in (*kept, *op.grads))
        return traffic, gathers * self.gathered_bytes
