"""Layers of PyG by the drop-in beside their own code: outputs and gradients compared, then steps timed in turn."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_leaves, tree_map

from gnnbench import backends, patch
from gnnbench.benchmarks import contest
from gnnbench.benchmarks.peers import taken
from gnnbench.benchmarks.records import OnDataset, Weighed
from gnnbench.comparison.parity.judge import AS_GOOD
from gnnbench.config import BackendConfig
from gnnbench.datasets import NodeDataset
from gnnbench.errors import ConfigError, UnsupportedOp
from gnnbench.measure import clock, memory
from gnnbench.measure.rounds import timed
from gnnbench.models.conv import EDGE_CHANNELS, RELATIONS, kinds, layer
from gnnbench.patch.functions import NORM

PYG, PYG_WAY = "pyg", "PyG"  # as an implementation, and how messages run that no kernels run
TOLERANCE = 1e-4  # root mean square of a difference from PyG's, over that of the tensor
FLOOR = 1e-2  # of the largest root mean square of all tensors, which each has at least
DIRECTIONS: tuple[Direction, ...] = ("forward", "step")
Direction = Literal["forward", "step"]
# Arguments that layers cannot do without, though they have defaults, and options that make them run.
WANTED = {
    **dict.fromkeys(("GINEConv", "GMMConv", "HEATConv", "NNConv", "PDNConv", "SplineConv"), "edge_attr"),
    **dict.fromkeys(("FastRGCNConv", "RGATConv", "RGCNConv"), "edge_type"),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "GINEConv": {"edge_dim": EDGE_CHANNELS},
    "FusedGATConv": {"add_self_loops": False},
}


class LayerRow(Weighed):
    """One implementation of a layer."""

    conv: str = Field(description="class of torch_geometric.nn")
    width: int = Field(description="channels of its input and output")
    direction: Direction = Field(description="forward without gradients; or step, which is forward and backward")
    implementation: str = Field(description="pyg, or the backend that the drop-in runs it on")
    way: str = Field("", description="by kernels of its own, spmm, fused or streamed; PyG where it could not")
    error: float | None = Field(
        None, description="root mean square of the difference from PyG over that of the tensor, the largest of all"
    )


class LayerBench(OnDataset):
    """Everything known about one benchmark of layers."""

    op: Literal["conv"] = "conv"
    threads: int
    layers: list[str] = Field(description="classes of torch_geometric.nn")
    rows: list[LayerRow]


def bench(
    dataset: NodeDataset,
    *,
    layers: Sequence[str] = (),
    out: Path,
    widths: Sequence[int] = (64,),
    backend: str = "isplib",
    **how: Any,
) -> LayerBench:
    """Check and time layers with as many outputs as inputs; `out/bench.json` is written after every one.

    Args:
        layers: classes, or "all".
        how: `memory_limit` and `on_event`, as of `contest.measured`.

    Raises:
        ConfigError: an unknown class or backend, or a width that is none.
        GnnbenchError: the backend cannot run, or `out` cannot be written.
    """
    names = list(kinds()) if [*layers] == ["all"] else list(dict.fromkeys(layers))
    problems, allowed = contest.unknown("layer", names, kinds()), backends.with_kernels()
    problems += [f"{width} is no width" for width in widths if width < 1]
    if backend not in allowed:
        problems.append(f"backend {backend!r} has no kernels; allowed: {', '.join(allowed)}")
    if not names or not widths:
        problems.append("give layers with --conv, such as PNAConv,EdgeConv or all, and at least one width")
    if problems:
        raise ConfigError(*problems)
    device = backends.load(BackendConfig(name=backend)).device
    record = LayerBench(
        backend=backend,
        **contest.facts(dataset),
        threads=torch.get_num_threads(),
        layers=names,
        rows=[
            LayerRow(conv=name, width=width, direction=direction, implementation=each)
            for name in names
            for width in widths
            for direction in DIRECTIONS
            for each in (PYG, backend)
        ],
    )
    return contest.measured(record, _steps(record, dataset, device), out / contest.FILE, device=device, **how)


def way(name: str, dataset: NodeDataset, width: int = 8, backend: str = "isplib") -> tuple[str, str]:
    """How the drop-in runs a layer, as in `LayerRow`, and the reason where PyG has to.

    Raises:
        ConfigError: PyG cannot build it or run it here.
    """
    ours = _Layer(name, *_made(name, dataset, width, contest.CPU), backend)
    try:
        ours.call()
    except Exception as error:  # of PyG's own code
        raise ConfigError(f"{name} cannot run here: {memory.ending(error)[1]}") from None
    try:
        for _ in range(2):  # what a call leaves behind may be in the way of the next one
            if any(tensor.requires_grad for tensor in ours.noted(ours.call)):
                ours.noted(ours.step)
    except UnsupportedOp as error:
        return PYG_WAY, "; ".join(error.reasons)
    return ours.way, "" if ours.way != PYG_WAY else "its forward does not call propagate"


class _Layer:
    """A layer on its inputs, by PyG's own code or by the drop-in, which leaves no messages to PyG.

    Attributes:
        way: how messages ran.
    """

    def __init__(self, name: str, conv: Module, inputs: dict[str, Any], backend: str = "") -> None:
        self.name, self.conv, self.inputs, self.way = name, conv, inputs, PYG_WAY
        ours = partial(patch.patched, backend, names=[name, NORM.name], strict=True)
        self.within = ours if backend else patch.unpatched
        self._seeds: list[Tensor] = []

    def call(self) -> list[Tensor]:
        """Outputs of floating-point numbers."""
        out = tree_leaves(self.conv(**self.inputs))
        return [each for each in out if isinstance(each, Tensor) and each.is_floating_point()]

    def forward(self) -> list[Tensor]:
        with torch.inference_mode():  # not no_grad, under which a checkpoint may run a layer that drops at random
            return self.call()

    def step(self) -> list[Tensor]:
        """Gradients of all inputs and parameters, after outputs."""
        out = self.call()
        self._seeds = self._seeds or _seeds(out)
        trained = [(each, seed) for each, seed in zip(out, self._seeds, strict=True) if each.requires_grad]
        ends, given = zip(*trained, strict=True)
        leaves = [each for each in (*tree_leaves(self.inputs), *self.conv.parameters()) if each.requires_grad]
        found = torch.autograd.grad(ends, leaves, given, allow_unused=True)
        return [*(each.detach() for each in out), *(torch.zeros(1) if each is None else each for each in found)]

    def work(self, direction: Direction) -> Callable[[], list[Tensor]]:
        return self.forward if direction == "forward" else self.step

    def noted(self, work: Callable[[], list[Tensor]]) -> list[Tensor]:
        """Do `work` of this layer as it is to run, and note how messages ran."""
        before = patch.patch_status().accelerated.get(self.name, 0)
        with self.within():
            out = work()
        status = patch.patch_status()
        self.way = status.ways[self.name] if status.accelerated.get(self.name, 0) > before else PYG_WAY
        return out

    def timed(self, direction: Direction, samples: int, calls: int) -> list[float]:
        """Seconds of calls, without what it takes to enter what they run within."""
        with self.within():
            return timed(self.work(direction), clock.cpu, samples, calls)


def _steps(record: LayerBench, dataset: NodeDataset, device: torch.device) -> Iterator[str]:
    """Weigh all layers, then check and time one after the other."""
    meter = memory.meter(device)
    layers = [[*rows] for _, rows in itertools.groupby(record.rows, lambda row: (row.conv, row.width))]
    with memory.freed_at_once():  # all are weighed first, for malloc fills the place of what was freed before
        for rows in layers:
            yield f"{rows[0].conv}, width {rows[0].width}: weighing"
            with suppress(Exception):  # which is met again, and told, when it is to be checked
                both = _both(rows[0], dataset, record.backend, device)
                for row in rows:
                    each = both[row.implementation]
                    with suppress(Exception), each.within():
                        each.work(row.direction)()  # what a first call makes and keeps
                        found = taken(each.work(row.direction), meter)
                        row.memory_increase_bytes, row.peak_memory_bytes = found
    for rows in layers:
        yield f"{rows[0].conv}, width {rows[0].width}: checking, then timing"
        try:
            both = _both(rows[0], dataset, record.backend, device)
            trained = any(each.requires_grad for each in both[PYG].call())
        except Exception as error:  # PyG cannot build it, or run it on this graph
            for row in rows:
                contest.fail(row, error)
                row.status = "oom" if row.status == "oom" else "unavailable"
        else:
            _compare(rows, both, trained)


def _both(row: LayerRow, dataset: NodeDataset, backend: str, device: torch.device) -> dict[str, _Layer]:
    """PyG's layer and ours."""
    conv, inputs = _made(row.conv, dataset, row.width, device)
    return {PYG: _Layer(row.conv, conv, inputs), backend: _Layer(row.conv, conv, inputs, backend)}


def _compare(rows: list[LayerRow], both: dict[str, _Layer], trained: bool) -> None:
    """Check and time one layer of one width."""
    for direction in DIRECTIONS:
        by_name = {row.implementation: row for row in rows if row.direction == direction}
        if direction == "step" and not trained:
            for row in by_name.values():
                row.status, row.reason = "unsupported", "it has nothing to train"
            continue
        judge = _Judge(both[PYG])
        contestants = {
            name: contest.Contestant(partial(each.timed, direction), partial(judge.wrong, each))
            for name, each in both.items()
        }
        contest.race(contestants, by_name, [PYG])


@dataclass
class _Judge:
    """Holds what a layer computes against PyG, whose results are to be there first.

    Another rounding moves a maximum to another edge and a ReLU's input across zero now and then, in PyG too: what
    is off by more than little is held against the layer in float64.
    """

    pyg: _Layer
    truth: list[Tensor] | None = None
    tolerance: float = TOLERANCE

    def wrong(self, layer: _Layer, row: LayerRow) -> str:
        """How far a layer is from PyG, if too far; only little where it was timed before."""
        if row.time_s and (row.implementation == PYG or self.truth is None):
            return ""
        try:
            found = layer.noted(layer.work(row.direction))
            # What a call leaves behind may be in the way of the next.
            found = found if row.time_s else layer.noted(layer.work(row.direction))
        except UnsupportedOp as error:
            layer.way, row.status, row.reason = PYG_WAY, "unsupported", "; ".join(error.reasons)
            return ""
        finally:
            row.way = layer.way
        if row.implementation == PYG:
            self.truth = found
            return ""
        if self.truth is None:
            row.reason = "not checked, as PyG did not come to an end"
            return ""
        apart = _error(found, self.truth)
        reason = f"differs from PyG by {apart:.2g}, more than {self.tolerance:g}"
        if row.time_s:
            return "" if apart <= self.tolerance else reason
        row.error = apart
        if apart <= TOLERANCE:
            return ""
        in_float64 = copy.deepcopy(self.pyg.conv).double(), _to(self.pyg.inputs, torch.float64)
        exact = _Layer(layer.name, *in_float64).work(row.direction)()
        off, theirs = _error(found, exact), _error(self.truth, exact)
        if off > AS_GOOD * theirs:
            return reason
        row.reason, self.tolerance = f"off by {off:.2g} from float64, and PyG by {theirs:.2g}", AS_GOOD * apart
        return ""


def _made(name: str, dataset: NodeDataset, width: int, device: torch.device) -> tuple[Module, dict[str, Any]]:
    """A layer, and the arguments of its forward by name."""
    torch.manual_seed(0)
    degree = torch.bincount(dataset.edge_index[1], minlength=dataset.num_nodes)
    options: dict[str, Any] = {**OPTIONS.get(name, {})}
    kind = kinds()[name]
    if "deg" in inspect.signature(kind.__init__).parameters:
        options["deg"] = torch.bincount(degree)
    conv = layer(name, width, width, options).to(device)
    inputs = {}
    for key, parameter in inspect.signature(kind.forward).parameters.items():
        if key != "self" and (parameter.default is parameter.empty or WANTED.get(name) == key):
            inputs[key] = _input(name, key, dataset, width)
    return conv, _to(inputs, device)


def _input(name: str, key: str, dataset: NodeDataset, width: int) -> Any:
    """Draw an argument of a forward by its name."""
    nodes, edge_index = dataset.num_nodes, dataset.edge_index
    x = torch.randn(nodes, 3, width) if name == "DNAConv" else torch.randn(nodes, width)
    match key:
        case "x" | "x_0":
            return x.requires_grad_()
        case "x_dict":
            return {"node": x.requires_grad_()}
        case "edge_index_dict":
            drawn = torch.randint(RELATIONS, (edge_index.size(1),))
            return {("node", f"to_{each}", "node"): edge_index[:, drawn == each] for each in range(RELATIONS)}
        case "pos" | "normal":
            return torch.nn.functional.normalize(torch.randn(nodes, 3), dim=1)
        case "edge_attr":
            return torch.rand(edge_index.size(1), EDGE_CHANNELS).requires_grad_()
        case "edge_type":
            return torch.randint(2 if name == "HEATConv" else RELATIONS, (edge_index.size(1),))
        case "node_type":
            return torch.randint(2, (nodes,))
        case "y":
            return dataset.y.long().clamp(min=0)
        case "edge_index" if name == "MeshCNNConv":  # which has four neighbours of every node
            return torch.stack([torch.randint(nodes, (4 * nodes,)), torch.arange(nodes).repeat_interleave(4)])
        case _ if key.endswith("edge_index"):
            return edge_index
        case _:
            raise ConfigError(f"{name} is called with {key}, which this benchmark has no values for")


def _seeds(out: list[Tensor]) -> list[Tensor]:
    """Gradients of outputs."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(each.shape, generator=generator).to(each) for each in out]


def _to(value: Any, where: torch.device | torch.dtype) -> Any:
    """Leaves on a device, or of a floating-point type."""

    def moved(leaf: Tensor) -> Tensor:
        stays = isinstance(where, torch.dtype) and not leaf.is_floating_point()
        return (leaf if stays else leaf.to(where)).detach().requires_grad_(leaf.requires_grad)

    return tree_map(moved, value)


def _error(found: list[Tensor], truth: list[Tensor]) -> float:
    """Largest root mean square of the difference of two tensors over that of the true one; NaN counts as inf."""
    if [each.shape for each in found] != [each.shape for each in truth]:
        return math.inf
    sizes = [float(each.double().square().mean().sqrt()) if each.numel() else 0.0 for each in truth]
    least = max(FLOOR * max(sizes, default=0.0), 1e-30)
    pairs = zip(found, truth, sizes, strict=True)
    errors = [
        float((a - b).double().square().mean().sqrt()) / max(size, least) for a, b, size in pairs if a.numel()
    ]
    return max((math.inf if math.isnan(error) else error for error in errors), default=0.0)
