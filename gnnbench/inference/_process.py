"""One backend in a fresh process: weights are read, passes timed, and outputs compared or written.

Outputs of all nodes come about in three ways: at once, a layer at a time, and on sampled neighbourhoods.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import Module

from gnnbench import backends, config
from gnnbench.backends.base import Backend
from gnnbench.comparison.parity import BackendParity, judge, steps
from gnnbench.comparison.parity.judge import EVALUATION
from gnnbench.comparison.process import Fresh
from gnnbench.config import Run
from gnnbench.datasets import AnyDataset, LinksDataset, TypedDataset
from gnnbench.errors import ConfigError, UnsupportedOp
from gnnbench.measure import clock, code, environment, memory
from gnnbench.results import files
from gnnbench.results.schema import MODES, Binding, Evaluation, Mode, OfRun
from gnnbench.training import layerwise, setup
from gnnbench.training.batching.full import Full
from gnnbench.training.batching.links import Links

LONG_S = 10.0  # of a first pass, from which it is the only one of its process
TIMED_S = 1.0  # of passes together
LEAST, MOST = 3, 100  # passes
LOGITS = "logits" + EVALUATION


class Process(OfRun):
    """One process: passes of one backend, each the outputs of all nodes or graphs."""

    weights: str = Field("", description="hash of the weights; empty where they are those of a seed")
    way: str = Field("", description="how nodes are gone over")
    prepare_s: float | None = Field(None, description="CSR, transpose and plan; once per graph")
    warmup_s: float | None = Field(None, description="the first pass; left out of the figures unless it is alone")
    passes_s: list[float] = Field([], description="each pass")
    outputs: int | None = Field(None, description="rows of the outputs: nodes, or graphs")
    peak_memory_bytes: int | None = Field(None, description="highest of the first pass")
    memory_increase_bytes: int | None = Field(None, description="peak above the level before it")
    scores: Evaluation | None = Field(None, description="metric of each split; None without weights")
    bindings: list[Binding] = Field([], description="which conv ran on which kernels")
    verdict: BackendParity | None = Field(None, description="beside the reference; None where it is that itself")
    warnings: list[str] = Field([], description="doubts about the figures")


class Way(NamedTuple):
    """How a model on its backend comes to the outputs [N, C] of all nodes, and to their metric on each split.

    A folder keeps layers in files, which a call with an equal key goes on with.
    """

    outputs: Callable[[Path | None, str], Tensor]
    scores: Callable[[Tensor], dict[str, float | None]]


class Job(Fresh[Process]):
    """Passes of one backend in a fresh process."""

    record: ClassVar[Any] = Process
    mode: Mode  # the way to the outputs
    weights: Path | None  # file of a `state_dict`; None for the weights of the seed
    digest: str  # hash of that file
    is_reference: bool = False  # leave the outputs in a file, and how far rounding moves them
    lowers: bool = False  # of the reference, also how far autocast does
    predictions: Path | None = None  # write the outputs to this file, in place of timing them

    def kept(self) -> Process | None:
        """The record of an earlier process that was to do the same, by the code at hand."""
        done = self.finished()
        same = done and (done.code, done.config, done.weights) == (self.code, self.config, self.digest)
        return done if same else None

    def attempt(self) -> int:
        files.save_json(made(self), self.result_path)
        return 0


@torch.no_grad()
def made(job: Job) -> Process:
    """Do the job; returns its record."""
    wanted = config.validate(job.config, "inference")
    environment.use_threads(wanted.measure.threads)
    backend = backends.load(wanted.backend, wanted.train)
    record = job.failed("ok", "")
    record.code, record.weights = code.digest(backends.module_of(wanted.backend.name)), job.digest
    record.environment = environment.describe()
    with memory.limited(wanted.measure.memory_limit, backend.device):
        recorder = clock.Recorder(0, clock.of(backend.device), memory.meter(backend.device))
        model, way, classes = _prepared(job, wanted, backend, recorder, record)
        record.environment["threads"] = environment.threads()
        if job.predictions:
            _predict(job, way, classes)
            return record
        outputs = _timed(wanted, way, recorder, record)
        if job.weights:
            scores = way.scores(outputs)
            record.scores = Evaluation(repeat=0, epoch=0, **scores)
        _compare(job, wanted, backend, model, way, outputs, record)
    return record


def _prepared(
    job: Job, wanted: Run, backend: Backend, recorder: clock.Recorder, record: Process
) -> tuple[Module, Way, bool]:
    """Model, way, and whether outputs are of classes; the dataset ends here, so that unused edges are freed."""
    dataset, dims = setup.opened(wanted, setup.read(wanted, job.roots), recorder, record)
    model = setup.build(wanted, dims)
    if job.weights:
        load(model, job.weights)
    model.to(backend.device).eval()
    way, record.prepare_s = recorder.time(lambda: _way(job, wanted, model, backend, dataset, record))
    return model, way, setup.has_classes(dataset)


def load(model: Module, path: Path) -> None:
    """Give a model the weights of a file.

    Raises:
        ConfigError: it is no file of weights, or they are of another model.
    """
    try:
        weights: Any = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception:  # of any kind, where a file is none of PyTorch's
        raise ConfigError(f"{path}: is not a readable file of weights, such as best.pt of a run") from None
    if not isinstance(weights, dict) or not all(isinstance(each, Tensor) for each in weights.values()):
        raise ConfigError(f"{path}: holds no weights by name; give the best.pt of a run, or a state_dict")
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        _, first, *_ = (line.strip(" \t.") for line in str(error).splitlines())
        raise ConfigError(
            f"{path}: holds weights of another model: {first}; give the configuration that they were trained with"
        ) from None


def _timed(wanted: Run, way: Way, recorder: clock.Recorder, record: Process) -> Tensor:
    """Time passes; returns the outputs of the last one."""
    resting = recorder.meter.resting()
    outputs, record.warmup_s = recorder.time(lambda: way.outputs(None, ""))
    record.peak_memory_bytes, record.outputs = recorder.meter.peak(), len(outputs)
    record.memory_increase_bytes = record.peak_memory_bytes - resting
    if record.warmup_s > LONG_S:
        record.passes_s = [record.warmup_s]
        return outputs
    keeps = memory.room_to_keep(wanted.measure, record.peak_memory_bytes) and memory.keep_freed()
    record.environment["allocator"] = "warm" if keeps else "system"
    while len(record.passes_s) < MOST and (len(record.passes_s) < LEAST or sum(record.passes_s) < TIMED_S):
        del outputs  # which a pass may find room in
        outputs, seconds = recorder.time(lambda: way.outputs(None, ""))
        record.passes_s.append(seconds)
    return outputs


def _compare(
    job: Job, wanted: Run, backend: Backend, model: Module, way: Way, outputs: Tensor, record: Process
) -> None:
    """Leave the outputs for others to compare with, or compare them."""
    snapshot = steps.allowed(wanted, backend, _tensors(outputs))
    if job.is_reference:
        if job.lowers:
            with torch.autocast(backend.device.type, torch.bfloat16):
                snapshot.learn_autocast(_tensors(way.outputs(None, "")))
        steps.jitter_weights(model)
        snapshot.learn_rounding(_tensors(way.outputs(None, "")))
        snapshot.save(job.tensors_path)
    elif job.reference:
        path, name = job.reference
        record.verdict = judge.judge(snapshot, judge.Snapshot.load(path), name)


def _tensors(outputs: Tensor) -> dict[str, Tensor]:
    return {LOGITS: outputs.detach().float().cpu().reshape(len(outputs), -1)}


def _predict(job: Job, way: Way, classes: bool) -> None:
    """Write the outputs, and of classes which is the highest; layers are kept meanwhile, to go on with."""
    assert job.predictions is not None
    layers = job.predictions.with_name(f"{job.predictions.name}.partial")
    key = hashlib.sha256(f"{job.code} {job.digest} {job.config}".encode()).hexdigest()
    outputs = way.outputs(layers, key).float().cpu()
    arrays: dict[str, Any] = {"outputs": outputs.numpy()}
    if classes:
        arrays["prediction"] = outputs.argmax(1).numpy()
    files.save_by(lambda file: np.savez(file, **arrays), job.predictions)
    shutil.rmtree(layers, ignore_errors=True)


def _way(job: Job, config: Run, model: Module, backend: Backend, dataset: AnyDataset, record: Process) -> Way:
    """Bind the model, and make of the dataset what it takes; `record` learns how nodes are gone over.

    Raises:
        ConfigError: the way cannot be gone over this dataset.
        UnsupportedOp: the backend cannot run this model exactly, or not a layer at a time.
    """
    if job.mode == "layerwise":
        return _by_layers(config, model, backend, dataset, record)
    ready = setup.prepare(config, model, backend, dataset, job.roots.cache)
    record.bindings, record.warnings = ready.bindings, ready.warnings
    record.way = "batches of graphs" if config.batch.graphs else MODES[job.mode]
    return Way(
        lambda folder, key: ready.batching.outputs(model),
        lambda outputs: ready.batching.scores(model, outputs.to(backend.device)),
    )


def _by_layers(config: Run, model: Module, backend: Backend, dataset: Any, record: Process) -> Way:
    setup.check_batch(config, dataset)
    record.bindings = backend.bind(model)
    if reasons := layerwise.unsupported(model, backend):
        raise UnsupportedOp(f"--mode layerwise on backend {backend.name!r}", reasons)
    kind = layerwise.TypedLayerwise if isinstance(dataset, TypedDataset) else layerwise.Layerwise
    passes = kind(model, dataset, backend)
    record.way = passes.way

    def scores(outputs: Tensor) -> dict[str, float | None]:
        """Build the batches whose metrics are asked for, and only now: links need their graph on the device."""
        links = isinstance(dataset, LinksDataset)
        batching = (
            Links(config.batch, dataset, backend, None) if links else Full(dataset, None, backend.device, x=())
        )
        return batching.scores(model, outputs.to(backend.device))

    return Way(lambda folder, key: passes(folder=folder, key=key), scores)
