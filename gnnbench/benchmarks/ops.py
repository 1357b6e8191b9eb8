"""The ops that can be benchmarked: inputs, the truth, and traffic beside the ceilings of the machine.

These are streaming memory, gathering cache lines from the L2 cache, and dense products.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import BatchNorm1d

import gnnbench
from gnnbench import config, models, registry
from gnnbench.backends import isplib
from gnnbench.backends.isplib import ceiling
from gnnbench.backends.isplib.choices import L2_BYTES
from gnnbench.benchmarks.records import Ceilings
from gnnbench.errors import GnnbenchError
from gnnbench.graph import CSRBuilder, Graph
from gnnbench.measure import clock, environment
from gnnbench.ops._workload import Direction, Workload
from gnnbench.ops.kernels import Kernels
from gnnbench.results import files

OPS: dict[str, Workload] = {
    op: workload
    for name in registry.names("ops")
    for op, workload in getattr(registry.find("ops", name), "WORKLOADS", {}).items()
}
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")
ROWS = 1 << 18  # at most; further ones are as fast
ROW_FLOOR = 1e-2  # of the root mean square of all rows, which a row counts for at least
TOLERANCE = 1e-3  # largest difference over the root mean square of the truth: rounding of long float32 sums
BF16_TOLERANCE = 0.05  # over the sum of that and of the entry itself: bfloat16 keeps eight bits of either
REFERENCE_BYTES = 1 << 29  # of one tensor of all sampled edges in float64
STREAM_BYTES = 1 << 28  # of each array; far more than a core's share of any cache
COPY_BYTES = 1 << 31  # the same on a GPU
LINES = 1 << 20  # gathered by each thread at once
GEMM = 2048, 2048, 2048  # rows, inputs and outputs of a product that is bound by arithmetic
TALL = 8192, 256, 256  # one whose weight stays in the cache
LEAST_S = 0.3  # of repeats of one measurement, for processors that take a while to reach their speed
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
        self.graph: Any = graph  # a Graph; None of an op that takes none
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
    def label(self) -> str:
        """Tell its sizes in words."""
        heads = f", {self.heads} heads" if self.heads > 1 else ""
        return "x".join(map(str, self.shape)) or f"width {self.width}{heads}"

    @property
    def gathered_bytes(self) -> int:
        """One row of `width` numbers for every edge: what effective bandwidths count."""
        return self.graph.num_edges * self.width * self.dtype.itemsize if self.graph else 0

    def flop(self, direction: Direction) -> int:
        """Multiplications and additions, where these can bound the time; else 0."""
        return self.op.products.get(direction, 0) * prod(self.shape)

    def compulsory(self, direction: Direction) -> tuple[int, int]:
        """Bytes that must cross the memory bus, every tensor once, and bytes gathered from the caches."""
        op, gathers = self.op, self.op.gathers.get(direction, 0)
        traffic = self.grad_out.nbytes  # the output, or its gradient
        if self.graph:
            traffic += self.graph.rowptr.nbytes + (self.graph.col.nbytes if gathers else 0)
        if op.names_edges:
            traffic += 4 * self.grad_out.numel()
        if direction == "forward":
            traffic += sum(tensor.nbytes for tensor in self.inputs.values())
        else:
            kept = self.inputs if op.saved is None else set(op.saved) & self.inputs.keys()
            traffic += sum(self.inputs[name].nbytes for name in (*kept, *op.grads))
        return traffic, gathers * self.gathered_bytes


class Reference:
    """The correct results of a case, in float64.

    Where the graph is large, whole rows of it are sampled. Their results are exact, for a destination needs its
    own edges only; gradients start from these rows alone, with zeros elsewhere.

    Attributes:
        grad_out: that of the case, zero outside of the sample.
        rows: how many destinations are compared.
    """

    def __init__(self, case: Case) -> None:
        self.case, self.rows, self.grad_out = case, len(case.grad_out), case.grad_out
        self._graph: Graph | None = None
        self._sampled: dict[str, Tensor] = {}  # by the first dimension of a tensor, what is compared
        if case.op.sizes:
            return
        graph, rows = case.graph, _sample(case.graph, REFERENCE_BYTES // (8 * case.width))
        self.rows = rows.numel()
        every, slices = torch.arange(graph.num_edges, device=graph.device), CSRBuilder()
        rowptr = slices.starts(graph.rowptr, rows)
        edges = slices.take(graph.rowptr, rows, rowptr, int(rowptr[-1]), every)
        self._sampled = {"N": rows, "E": edges}
        self._graph = Graph(rowptr, graph.col[edges], graph.num_cols)
        if self.rows < graph.num_rows:
            sampled = self._sampled[case.op.out[0]]
            self.grad_out = torch.zeros_like(case.grad_out)
            self.grad_out[sampled] = case.grad_out[sampled]

    def tolerance(self, in_bf16: bool = False) -> float:
        """The largest `error` that is allowed."""
        return BF16_TOLERANCE if in_bf16 or self.case.dtype == torch.bfloat16 else TOLERANCE

    def error(self, direction: Direction, tensors: list[Tensor], in_bf16: bool = False) -> float:
        """Largest difference of any entry from the truth, over the truth's root mean square; NaN counts as inf.

        Forward, that of a destination's row is its own, unless the row cancels, so that a hub hides no other. In
        bfloat16 it is over the sum of that of all and of the entry, since the largest entries are rounded most.

        Args:
            in_bf16: it was computed from inputs rounded to bfloat16, whatever their type.
        """
        forward = direction == "forward"
        every = [self.case.op.out] if forward else [self.case.dims[name] for name in self.case.op.grads]
        found = [self._drawn(dims, tensor) for dims, tensor in zip(every, tensors, strict=True)]
        truths = [self._out.detach()] if forward else self._backward
        rounded = in_bf16 or self.case.dtype == torch.bfloat16
        by_row = forward and self.case.op.out[0] == "N" and not rounded
        return max(_difference(one, truth, rounded, by_row) for one, truth in zip(found, truths, strict=True))

    @cached_property
    def _backward(self) -> list[Tensor]:
        grad_out = self._drawn(self.case.op.out, self.case.grad_out)
        return list(torch.autograd.grad(self._out, [self._inputs[name] for name in self.case.op.grads], grad_out))

    @cached_property
    def _inputs(self) -> dict[str, Tensor]:
        case = self.case
        leaves = {name: self._drawn(case.dims[name], tensor.detach()) for name, tensor in case.inputs.items()}
        return {name: leaf.requires_grad_(name in case.op.grads) for name, leaf in leaves.items()}

    @cached_property
    def _out(self) -> Tensor:
        return self.case.op.call(Kernels(), self._graph, **self._inputs)

    def _drawn(self, dims: str, tensor: Tensor) -> Tensor:
        """The rows of a tensor that are looked at, in float64 but for whole numbers."""
        drawn = tensor[self._sampled[dims[0]]] if dims[0] in self._sampled else tensor
        return drawn.double() if drawn.is_floating_point() else drawn


def _sample(graph: Graph, edges: int) -> Tensor:
    """All rows, or the longest one and random others that have about `edges` edges together; ascending."""
    if graph.num_edges <= edges:
        return torch.arange(graph.num_rows, device=graph.device)
    order = torch.randperm(graph.num_rows, generator=torch.Generator().manual_seed(0)).to(graph.device)
    fitting = order[graph.degree[order].cumsum(0) <= edges]
    return torch.cat([fitting, graph.degree.argmax().view(1)]).unique()


def _difference(tensor: Tensor, truth: Tensor, rounded: bool, by_row: bool) -> float:
    if tensor.shape != truth.shape or not bool(tensor.isfinite().all()):
        return float("inf")
    if not truth.numel():
        return 0.0
    scale = truth.square().mean().sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    if by_row:
        rows = truth.square().flatten(1).mean(1).sqrt()
        scale = rows.maximum(ROW_FLOOR * scale).view(-1, *[1] * (truth.dim() - 1))
    return float(((tensor - truth).abs() / (scale + truth.abs() if rounded else scale)).max())


def of_configurations(op: str) -> list[str]:
    """Shapes such as "820x300x300" of the layers that an op computes in an epoch of any configuration, ascending.

    Of a step on sampled neighbourhoods, rows are counted as if no node were drawn twice, up to all nodes.
    """
    found = {(rows, *sizes) for path in CONFIGS.glob("*.yaml") for rows, sizes in _layers(config.load(path), op)}
    return ["x".join(map(str, shape)) for shape in sorted(found, key=lambda shape: (prod(shape), shape))]


def _layers(run: config.Run, op: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    dataset, batch = run.dataset, run.batch
    # Their layers may be within messages, over as many edges as a chunk has; or each have the nodes of a type.
    if run.model.name == "conv" or hasattr(registry.find("models", run.model.name), "typed"):
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
            if batch.graphs:
                rows = batch.size * (1 if path.startswith("head") else nodes)
            elif batch.draws_neighbors and not batch.links:
                hops = len(batch.fanouts) - int(path.split(".")[1])
                rows = min(nodes, batch.size * prod(1 + fanout for fanout in batch.fanouts[:hops]))
            elif path.startswith("decoder"):
                rows = batch.size * (1 + batch.negatives)
            yield min(round(rows), ROWS), (*sizes,)


def ceilings(cache: Path) -> Ceilings | None:
    """Measure for about three seconds; the highest that this machine ever reached with so many threads counts.

    What else runs can only lower a figure, so that the file in `cache` comes closer to the truth with every run.
    None where the kernels are not built.
    """
    if isplib.MISSING or ceiling.native is None:
        return None
    found = _ceilings()
    machine = json.dumps([environment.cpu(), torch.get_num_threads(), isplib.ISA[isplib.isa_level()]])
    path = cache / "ceilings" / f"{hashlib.sha256(machine.encode()).hexdigest()[:16]}.json"
    with suppress(OSError, ValueError):  # not there yet, or not ours
        known = Ceilings.model_validate_json(path.read_bytes())
        highest = {name: max(value, getattr(known, name) or 0.0) for name, value in found.model_dump().items()}
        found = Ceilings(**highest)
    with suppress(GnnbenchError):  # a cache that cannot be written
        files.save_json(found, path)
    return found


def _ceilings() -> Ceilings:
    """Measure those of now, each the best of many repeats; of products the most that PyTorch's and ours do."""
    a, b, c = torch.zeros(3, STREAM_BYTES // 4)
    streams = ((lambda: b.sum(), 1), (lambda: a.copy_(b), 2), (lambda: torch.add(b, c, alpha=2.0, out=a), 3))
    stream = max(arrays * a.nbytes / _best(call) for call, arrays in streams)
    table = torch.ones(max(1, L2_BYTES // 2 // 64), ceiling.LINE_FLOATS)
    line = torch.randint(len(table), (torch.get_num_threads(), LINES), dtype=torch.int32)
    gather = line.numel() * 64 / _best(lambda: ceiling.gather(table, line))
    kernels, flop = isplib.IsplibKernels(), 0.0
    for rows, ins, outs in (GEMM, TALL):
        x, weight = torch.ones(rows, ins), torch.ones(outs, ins)
        for call in (lambda: x @ weight.t(), lambda: kernels.linear(x, weight, None)):  # noqa: B023
            flop = max(flop, 2 * rows * ins * outs / _best(call))
    return Ceilings(stream_bytes_per_s=stream, gather_bytes_per_s=gather, flop_per_s=flop)


def copying(device: torch.device) -> Ceilings:
    """Measure that of a GPU: what a copy reads and writes, of arrays much larger than its cache."""
    size = COPY_BYTES if device.type == "cuda" else STREAM_BYTES
    source, target = torch.zeros(2, size // 4, device=device)
    seconds = _best(lambda: target.copy_(source), clock.instants(device))
    return Ceilings(stream_bytes_per_s=2 * source.nbytes / seconds)


def _best(call: Callable[[], object], now: Callable[[], Any] = clock.cpu) -> float:
    """Fewest seconds that one call took; the first one is not timed."""
    call()
    times: list[float] = []
    while sum(times) < LEAST_S:
        start = now()
        call()
        times.append(now() - start)
    return min(times)
