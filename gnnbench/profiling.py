"""Where the time of an epoch goes: a few epochs under PyTorch's profiler, beside as many that are only timed.

Phases and layers are ranges, from which events of the profiler become rows; the trace tells memory over time.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import Field
from torch.autograd import DeviceType
from torch.nn import Module, ModuleDict
from torch.profiler import ProfilerActivity, record_function

from gnnbench.config import Run
from gnnbench.datasets import Roots
from gnnbench.errors import ConfigError
from gnnbench.measure import clock, memory
from gnnbench.results import files
from gnnbench.results.schema import Binding, OfRun, Record, Result
from gnnbench.training import run
from gnnbench.training.loop import Trainer

if TYPE_CHECKING:
    from gnnbench.backends.base import Backend
    from gnnbench.training.batching._batch import Batching

TRACES = (".json", ".json.gz")
BETWEEN = "(between ops)"  # Python, and what starts and ends ops
OURS = "gnnbench::"
NODE = "autograd::engine::evaluate_function: "  # a step of the backward pass, by the name of its gradient
BACKWARD_FUNCTION = 1  # the scope of what runs such a step, as in at::RecordScope
# By the phase, what is beside the layers of a model.
OUTSIDE = {"load": "batches", "forward": "loss", "optimizer": "optimizer", "backward": "gradients"}

Event = Any  # torch.autograd.profiler_util.FunctionEvent
POINTS = 1000  # of memory over time
DEVICES = {0: False, 1: True}  # PyTorch's number of a type of device -> whether it is a GPU
EPOCH, PHASE, LAYER = "epoch", "phase: ", "layer: "


class Op(Record):
    """An op of a layer in one phase. Times are seconds of an epoch, the mean over all that were profiled."""

    phase: Literal["", "load", "forward", "backward", "optimizer"] = Field(description="empty: between phases")
    layer: str = Field(
        description='path in the model such as "convs.0", or "model" for what it does between layers; "batches", '
        '"loss", "optimizer"; "gradients" for those of parameters as they are accumulated'
    )
    op: str = Field(description='as in the trace, with what it calls; "(between ops)" for Python and dispatch')
    calls: float = Field(description="of an epoch")
    time_s: float = Field(description="on the processor")
    device_s: float | None = Field(None, description="of its kernels on the GPU; None on a CPU")
    share: float = Field(description="of the epoch; on a GPU, of the time of all kernels")


class Memory(Record):
    """Tensors over time, as PyTorch's allocator tells them: those of the profiled epochs alone on a CPU."""

    seconds: list[float] = Field(description="since the first profiled epoch began")
    allocated_bytes: list[int] = Field(description="at that time, or at most since the time before")
    epochs_s: list[float] = Field(description="when each epoch began")
    peak_bytes: int


class Profile(OfRun):
    """Everything known about the profile of a run; fields that it never reached are None or empty."""

    bindings: list[Binding] = Field([], description="which conv ran on which kernels")
    epochs: int = Field(description="that were profiled; as many were timed before, without the profiler")
    timed_epoch_s: float | None = Field(None, description="median epoch without the profiler")
    epoch_s: float | None = Field(None, description="median epoch under it")
    slowdown: float | None = Field(None, description="the second over the first")
    loading_s: float | None = Field(None, description="making the batches of an epoch, in whichever thread")
    ops: list[Op] = Field([], description="the one that takes longest first")
    memory: Memory | None = None
    trace: str = Field("", description="file of the Chrome trace")
    peak_memory_bytes: int | None = Field(None, description="of the process or device, in the timed epochs")
    warnings: list[str] = Field([], description="doubts about the timed epochs")

    @property
    def on_gpu(self) -> bool:
        return any(op.device_s is not None for op in self.ops)

    @property
    def exit_code(self) -> int:
        """0, or 1 where it did not come to its end."""
        return 0 if self.status == "ok" else 1


def check(config: Run, epochs: int, trace: Path | None = None) -> None:
    """Raise ConfigError for what cannot be profiled, before anything runs."""
    problems = []
    if epochs < 1:
        problems.append(f"epochs: a profile needs at least one, found {epochs}")
    if trace is not None and not trace.name.endswith(TRACES):
        problems.append(f"{trace}: a trace is written as {' or '.join(TRACES)}; give the file such a name")
    if config.train.cuda_graph:
        problems.append("train.cuda_graph: a recorded step is one launch, where no op shows; profile without it")
    if problems:
        raise ConfigError(*problems)


def profile(
    config: Run,
    *,
    epochs: int = 3,
    roots: Roots,
    out: Path | None = None,
    trace: Path | None = None,
    on_event: Callable[[run.Event], None] | None = None,
) -> Profile:
    """Train as `config` says, warm-up and `epochs` timed epochs, then as many under PyTorch's profiler.

    A profile that did not come to its end says so in `status` and `reason`.

    Args:
        config: whose number of epochs, repeats, patience and checkpoints do not apply.
        out: the folder for `profile.json`, or None to write nothing.
        trace: the file for a Chrome trace of the profiled epochs.
        on_event: as of `run.run`.

    Raises:
        ConfigError: a bad value.
        DatasetError: the data are missing, broken or cannot be trained on.
        GnnbenchError: a file cannot be written.
    """
    check(config, epochs, trace)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler reports its start on standard error
    planned = config.measure.warmup + epochs
    train = {"epochs": planned, "eval_every": planned, "repeats": 1, "patience": 0, "checkpoint_every": 0}
    config = config.changed(train=train)
    profiler = _Profiler(config, epochs)
    result = run.run(config, roots=roots, out=None, on_event=on_event, inspect=profiler)
    shared = Profile.model_fields.keys() & Result.model_fields.keys() - {"epoch_s", "loading_s"}
    record = Profile(epochs=epochs, **{name: getattr(result, name) for name in shared})
    if result.status == "ok" and result.epoch_s:
        profiler.tell(record, result.epoch_s.median, trace)
    if out:
        files.save_json(record, out / "profile.json")
    return record


class _Profiler:
    """Profiler that a run calls after its last timed epoch."""

    def __init__(self, config: Run, epochs: int) -> None:
        self.config, self.epochs = config, epochs
        self.epoch_s: list[float] = []
        self.loading_s: list[float] = []

    def __call__(self, backend: Backend, model: torch.nn.Module, batching: Batching, ends: Any) -> None:
        """Train on, under the profiler."""
        self.on_gpu = backend.device.type == "cuda"
        recorder = clock.Recorder(0, clock.of(backend.device), memory.meter(backend.device))
        phase = partial(_ranged, recorder)
        trainer = Trainer(model, batching, self.config.train, self.config.train.seed)
        activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * self.on_gpu]
        self.profiler = torch.profiler.profile(activities=activities, profile_memory=True)
        with layers(model):
            trainer.train()  # makes what the optimizer keeps, and compiles again where hooks are compiled too
            with self.profiler:
                for number in range(1, self.epochs + 1):
                    with recorder.epoch(), record_function(EPOCH):
                        loss = trainer.train(phase)
                    self.epoch_s.append(recorder.sample(0, number, trainer.check(loss)).epoch_s)
                    self.loading_s += [batching.loading_s] * batching.loads

    def tell(self, record: Profile, timed_epoch_s: float, trace: Path | None) -> None:
        """Put what was seen into the record, and the trace into its file."""
        record.timed_epoch_s, record.epoch_s = timed_epoch_s, statistics.median(self.epoch_s)
        record.slowdown = record.epoch_s / timed_epoch_s
        record.loading_s = statistics.median(self.loading_s) if self.loading_s else None
        record.ops = ops(self.profiler.events(), self.epochs, on_gpu=self.on_gpu)
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder, "trace.json")
            self.profiler.export_chrome_trace(str(written))
            record.memory = _memory(written, on_gpu=self.on_gpu)
            if trace is not None:
                content = written.read_bytes()
                files.save_bytes(gzip.compress(content) if trace.suffix == ".gz" else content, trace)
                record.trace = str(trace)


@contextmanager
def _ranged(recorder: clock.Recorder, name: str) -> Iterator[None]:
    """A phase of a recorder, as a range too."""
    with record_function(PHASE + name), recorder.phase(name):
        yield


@contextmanager
def layers(model: Module) -> Iterator[None]:
    """Make a range of every forward of the model and of its layers.

    What lies within a layer has no hooks, for kernels leave a hooked layer of a conv to PyTorch.
    """
    opened: list[record_function] = []

    def enter(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            opened.append(record_function(LAYER + name))
            opened[-1].__enter__()

        return hook

    def leave(*_: Any) -> None:
        opened.pop().__exit__(None, None, None)

    with ExitStack() as hooks:
        for path, module in model.named_modules():
            parent, _, own = path.rpartition(".")
            entry = own.isdecimal() or isinstance(getattr(model, parent, None), ModuleDict)
            # An entry of a list or dict is a layer, too, as is the conv of a relation, whose name is in brackets.
            if path.count(".") <= entry or own.startswith("<"):
                hooks.callback(module.register_forward_pre_hook(enter(path or "model")).remove)
                hooks.callback(module.register_forward_hook(leave, always_call=True).remove)
        yield


@dataclass
class Cost:
    """Microseconds, and how often."""

    calls: int = 0
    time: float = 0.0
    device: float = 0.0


def ops(events: Sequence[Event], epochs: int, *, on_gpu: bool) -> list[Op]:
    """The ops of `epochs` epochs, those that take longest first; together they take as long as the epochs."""
    costs = _Walk([event for event in events if event.device_type == DeviceType.CPU and not event.is_async]).costs
    total = sum(cost.device if on_gpu else cost.time for cost in costs.values())
    rows = [
        Op(
            phase=phase,
            layer=layer,
            op=op,
            calls=cost.calls / epochs,
            time_s=cost.time / epochs / 1e6,
            device_s=cost.device / epochs / 1e6 if on_gpu else None,
            share=(cost.device if on_gpu else cost.time) / total if total else 0.0,
        )
        for (phase, layer, op), cost in costs.items()
    ]
    return sorted(rows, key=lambda row: (-row.share, -row.time_s))


@dataclass
class _Walk:
    """Goes down from the ranges of epochs to the ops that Python called, and to ours wherever they are."""

    events: Sequence[Event]
    costs: dict[tuple[str, str, str], Cost] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.layers: dict[tuple[int, int], Event] = {}
        for event in sorted(self.events, key=lambda event: event.time_range.start):
            # Of the ops with a number, the last one that starts is the one whose gradient bears it.
            if event.sequence_nr >= 0 and not event.name.startswith(NODE) and event.scope != BACKWARD_FUNCTION:
                self.layers[event.sequence_nr, event.thread] = event
        self.adopted = self._of_other_threads()
        for event in self.events:
            if event.name == EPOCH:
                self.visit(event, "", "")

    def visit(self, event: Event, phase: str, layer: str) -> None:
        """Add an event and all that it called."""
        is_range = event.name == EPOCH
        if event.name.startswith(PHASE):
            is_range, name = True, event.name.removeprefix(PHASE)
            if name in OUTSIDE:  # others lie within these
                phase, layer = name, OUTSIDE[name]
        elif event.name.startswith(LAYER):
            is_range, layer = True, event.name.removeprefix(LAYER)
        if is_range:
            children = [*event.cpu_children, *self.adopted.get(id(event), ())]
            elsewhere = sum(child.cpu_time_total for child in children)
            self.add(phase, layer, BETWEEN, 0, event.cpu_time_total - elsewhere, event.self_device_time_total)
            for child in children:
                self.visit(child, phase, layer)
        elif event.name.startswith(NODE):
            self.op(event, phase, self.layer_of(event) or layer, event.name.removeprefix(NODE))
        else:
            self.op(event, phase, layer, event.name)

    def op(self, event: Event, phase: str, layer: str, name: str) -> None:
        """Add an op with what it called; ops of ours are told apart from one that is not."""
        inner = [] if event.name.startswith(OURS) else [*_ours(event)]
        for each in inner:
            self.add(phase, layer, each.name, 1, each.cpu_time_total, each.device_time_total)
        time = event.cpu_time_total - sum(each.cpu_time_total for each in inner)
        device = event.device_time_total - sum(each.device_time_total for each in inner)
        self.add(phase, layer, name, 1, time, device)

    def add(self, phase: str, layer: str, op: str, calls: int, time: float, device: float) -> None:
        cost = self.costs.setdefault((phase, layer, op), Cost())
        cost.calls += calls
        cost.time += max(time, 0.0)
        cost.device += device

    def layer_of(self, node: Event) -> str:
        """The layer whose forward a step of the backward pass belongs to; empty where there is none."""
        step = next((child for child in node.cpu_children if child.scope == BACKWARD_FUNCTION), None)
        event = self.layers.get((step.sequence_nr, step.fwd_thread)) if step else None
        while event is not None:
            if event.name.startswith(LAYER):
                return str(event.name.removeprefix(LAYER))
            if outside := OUTSIDE.get(event.name.removeprefix(PHASE)):
                return outside
            event = event.cpu_parent
        return ""

    def _of_other_threads(self) -> dict[int, list[Event]]:
        """Group what ran for the backward in a thread of its own, as on a GPU, by its range in the main thread."""
        ranges = [event for event in self.events if event.name == PHASE + "backward"]
        ranges.sort(key=lambda event: event.time_range.start)
        starts, main = [event.time_range.start for event in ranges], {event.thread for event in ranges}
        adopted: dict[int, list[Event]] = {}
        for event in self.events:
            if event.cpu_parent is None and event.thread not in main:
                place = bisect_right(starts, event.time_range.start) - 1
                if place >= 0 and event.time_range.start < ranges[place].time_range.end:
                    adopted.setdefault(id(ranges[place]), []).append(event)
        return adopted


def _ours(event: Event) -> Iterator[Event]:
    """The outermost ops of ours that an event called."""
    for child in event.cpu_children:
        if child.name.startswith(OURS):
            yield child
        else:
            yield from _ours(child)


def _memory(trace: Path, *, on_gpu: bool) -> Memory | None:
    """The tensors of a device over time; None if the trace tells nothing of them."""
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    starts = sorted(event["ts"] for event in events if event.get("name") == EPOCH and event.get("ph") == "X")
    told = [
        (event["ts"], event["args"]["Total Allocated"])
        for event in events
        if event.get("name") == "[memory]" and DEVICES.get(event["args"].get("Device Type")) is on_gpu
    ]
    if not told or not starts:
        return None
    points = thinned(sorted(told, key=lambda point: point[0]))
    return Memory(
        seconds=[(time - starts[0]) / 1e6 for time, _ in points],
        allocated_bytes=[size for _, size in points],
        epochs_s=[(start - starts[0]) / 1e6 for start in starts],
        peak_bytes=max(size for _, size in points),
    )


def thinned(points: list[tuple[float, int]], limit: int = POINTS) -> list[tuple[float, int]]:
    """At most `limit` points: of every stretch its last one, with the highest size in it."""
    if len(points) <= limit:
        return points
    ends = [round(place * len(points) / limit) for place in range(limit + 1)]
    stretches = (points[begin:end] for begin, end in pairwise(ends))
    return [(stretch[-1][0], max(size for _, size in stretch)) for stretch in stretches]
