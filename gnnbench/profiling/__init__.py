"""Where the time of an epoch goes: a few epochs under PyTorch's profiler, beside as many that are only timed.

_events      from ranges of phases and layers to rows; the Chrome trace, and memory over time, which it tells
"""

from __future__ import annotations

import gzip
import os
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import Field
from torch.profiler import ProfilerActivity, record_function

from gnnbench.config import Run
from gnnbench.datasets import Roots
from gnnbench.errors import ConfigError
from gnnbench.measure import clock, memory
from gnnbench.profiling import _events
from gnnbench.profiling._events import Memory, Op
from gnnbench.results import files
from gnnbench.results.schema import Binding, OfRun, Result
from gnnbench.training import run
from gnnbench.training.loop import Trainer

if TYPE_CHECKING:
    from gnnbench.backends.base import Backend
    from gnnbench.training.batching._batch import Batching

__all__ = ["Memory", "Op", "Profile", "check", "profile"]

TRACES = (".json", ".json.gz")


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
        problems.append(
            "train.cuda_graph: a recorded step is one launch, in which no op shows; profile without it"
        )
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

    Args:
        config: whose number of epochs, repeats, patience and checkpoints do not apply.
        out: the folder for `profile.json`, or None to write nothing.
        trace: the file for a Chrome trace of the profiled epochs.
        on_event: as of `run.run`.

    Returns:
        The profile; one that did not come to its end says so in `status` and `reason`.

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
        phase = partial(_events.phase, recorder)
        trainer = Trainer(model, batching, self.config.train, self.config.train.seed)
        activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * self.on_gpu]
        self.profiler = torch.profiler.profile(activities=activities, profile_memory=True)
        with _events.layers(model):
            trainer.train()  # makes what the optimizer keeps, and compiles again where hooks are compiled too
            with self.profiler:
                for number in range(1, self.epochs + 1):
                    with recorder.epoch(), record_function(_events.EPOCH):
                        loss = trainer.train(phase)
                    self.epoch_s.append(recorder.sample(0, number, trainer.check(loss)).epoch_s)
                    self.loading_s += [batching.loading_s] * batching.loads

    def tell(self, record: Profile, timed_epoch_s: float, trace: Path | None) -> None:
        """Put what was seen into the record, and the trace into its file."""
        record.timed_epoch_s, record.epoch_s = timed_epoch_s, statistics.median(self.epoch_s)
        record.slowdown = record.epoch_s / timed_epoch_s
        record.loading_s = statistics.median(self.loading_s) if self.loading_s else None
        record.ops = _events.ops(self.profiler.events(), self.epochs, on_gpu=self.on_gpu)
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder, "trace.json")
            self.profiler.export_chrome_trace(str(written))
            record.memory = _events.memory(written, on_gpu=self.on_gpu)
            if trace is not None:
                content = written.read_bytes()
                files.save_bytes(gzip.compress(content) if trace.suffix == ".gz" else content, trace)
                record.trace = str(trace)
