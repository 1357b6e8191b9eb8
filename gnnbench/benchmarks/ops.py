"""The ops that can be benchmarked, as they declare themselves, with inputs drawn and the traffic these need."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch.nn import BatchNorm1d

import gnnbench
from gnnbench import config, models, registry
from gnnbench.graph import Graph
from gnnbench.ops._workload import Direction, Workload

OPS: dict[str, Workload] = {
    op: workload
    for name in registry.names("ops")
    for op, workload in getattr(registry.find("ops", name), "WORKLOADS", {}).items()
}
ROWS = 1 << 18  # at most; further ones are as fast
CONFIGS = Path(gnnbench.__file__).parent / "configs"
# Nodes, of sets of graphs those of one on average; features, 0 where they are embedded; and classes.
SIZES: dict[str, tuple[float, int, int]] = {
    "cora": (2_708, 1_433, 7),
    "citeseer": (3_327, 3_703, 6),
    "pubmed": (19_717, 500, 3),
    "reddit": (232_965, 602, 41),
    "ogbn-arxiv": (169_343, 128, 40),
    "ogbn-products": (2_449_029, 100, 47),
    "ogbn-proteins": (132_534, 8, 112),
    "ogbl-collab": (235_868, 128, 1),
    "ogbl-ddi": (4_267, 256, 1),
    "ogbl-ppa": (576_289, 58, 1),
    "ogbl-citation2": (2_927_963, 128, 1),
    "ogbg-molhiv": (25.5, 0, 1),
    "cluster": (117.2, 7, 6),
    "pattern": (118.9, 3, 2),
    "mutag": (17.9, 7, 2),
    "proteins": (39.1, 3, 2),
}


# Op -> the sizes of a layer beside its rows; None of one that it does not compute.
LAYERS: dict[str, Callable[[Any], tuple[int, ...] | None]] = {
    "linear": lambda layer: layer.weight.shape[::-1] if type(layer).__name__ == "Linear" else None,
    "batch_norm": lambda layer: (layer.num_features,) if isinstance(layer, BatchNorm1d) else None,
    "dropout": lambda layer: layer.weight.shape[1:] if type(layer).__name__ == "Linear" else None,  # of inputs
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


def of_configurations(op: str) -> list[str]:
    """Shapes such as "820x300x300" of the layers that an op computes in an epoch of any configuration, ascending.

    Of a step on sampled neighbourhoods, rows are counted as if no node were drawn twice, up to all nodes.
    """
    found = {(rows, *sizes) for path in CONFIGS.glob("*.yaml") for rows, sizes in _layers(config.load(path), op)}
    return ["x".join(map(str, shape)) for shape in sorted(found, key=lambda shape: (prod(shape), shape))]


def _layers(run: config.Run, op: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    dataset, batch = run.dataset, run.batch
    if run.model.name == "conv":  # whose layers may be within messages, over as many edges as a chunk has
        return
    if hasattr(registry.find("models", run.model.name), "typed"):  # whose layers each have the nodes of a type
        return
    nodes, features, classes = SIZES[(getattr(dataset, "preset", None) or dataset.name).lower()]
    with torch.device("meta"):
        hidden = run.model.hidden
        links = models.Links(int(nodes)) if batch.links else None
        edges = 0 if features else hidden
        model = models.build(run.model, features or hidden, classes, edge_channels=edges, links=links)
    for path, layer in model.named_modules():
        if sizes := LAYERS[op](layer):
            rows = nodes * getattr(dataset, "scale", 1.0)
            if batch.kind == "graphs":
                rows = batch.size * (1 if path.startswith("head") else nodes)
            elif batch.kind == "neighbors":
                hops = len(batch.fanouts) - int(path.split(".")[1])
                rows = min(nodes, batch.size * prod(1 + fanout for fanout in batch.fanouts[:hops]))
            elif path.startswith("decoder"):
                rows = batch.size * (1 + batch.negatives)
            yield min(round(rows), ROWS), (*sizes,)
