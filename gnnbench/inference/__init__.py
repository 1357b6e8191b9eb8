"""Inference: outputs of all nodes by trained weights, on backends in turn, each process checked against PyG.

_process     one backend in a fresh process: at once, a layer at a time, or on sampled neighbourhoods
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, Literal

from pydantic import Field

from gnnbench import registry, stopping
from gnnbench.comparison.parity import REFERENCES, Parity
from gnnbench.comparison.record import BASELINES, FASTEST, PEER, Speedup, speedup
from gnnbench.comparison.turns import Progress, ResolvedRun, Turns, resolve
from gnnbench.config import Run, backend_sections
from gnnbench.datasets import Roots
from gnnbench.errors import ConfigError, did_you_mean
from gnnbench.inference._process import Job, Process
from gnnbench.results import files, schema
from gnnbench.results.schema import MODES, Binding, DatasetFacts, Evaluation, Record, Summary
from gnnbench.stats import grouped

OF_TRAINING = {"cuda_graph", "workers", "halo", "loader", "loader_workers"}  # options that passes have no part in


class Row(Record):
    """One backend over all rounds; figures are None where it did not finish every round."""

    backend: str
    status: Literal["ok", "oom", "unsupported", "unavailable", "failed", "interrupted", "pending"] = "pending"
    reason: str = Field("", description="one sentence where status is not ok")
    way: str = Field("", description="how nodes are gone over")
    pass_s: Summary | None = Field(None, description="the outputs of all nodes, or graphs")
    round_pass_s: list[float] = Field([], description="median pass of each round")
    outputs_per_s: float | None = Field(None, description="nodes, or graphs, over the median pass")
    speedup: dict[str, Speedup | None] = Field({}, description="by baseline; None unless both ran and are green")
    peak_memory_bytes: int | None = Field(None, description="highest over rounds")
    memory_increase_bytes: int | None = Field(None, description="highest over rounds")
    memory_ratio: float | None = Field(None, description="peak memory over that of pyg; below 1 is less")
    prepare_s: float | None = Field(None, description="median over rounds")
    scores: Evaluation | None = Field(None, description="metric of each split; None without weights")
    bindings: list[Binding] = Field([], description="which conv ran on which kernels")


class Predictions(Record):
    """The file that was written beside the figures."""

    path: str
    backend: str
    status: schema.Status | Literal["pending"] = "pending"
    reason: str = ""


class Inference(Record):
    """Everything that was found; the passes are in the files of its rounds."""

    schema_version: int = schema.SCHEMA_VERSION
    status: Literal["running", "ok", "interrupted"] = "running"
    reason: str = ""
    mode: schema.Mode
    checkpoint: str = Field(description="file of the weights; empty where they are those of a seed")
    weights: str = Field(description="hash of that file")
    dataset: str = Field("", description="the dataset's label, with what is synthetic")
    dataset_facts: DatasetFacts | None = None
    config: dict[str, Any] = Field(description="the resolved configuration that all backends ran")
    environment: dict[str, Any] = Field({}, description="of the latest process")
    rounds: int
    predictions: Predictions | None = None
    agreement: Parity = Field(Parity(), description="whether outputs are those of the reference")
    rows: list[Row]
    warnings: list[str] = Field([], description="doubts about the figures")

    @property
    def exit_code(self) -> int:
        """3 where parity is red, 1 where nothing ran, predictions failed or it was stopped, otherwise 0."""
        if self.agreement.ok is False:
            return 3
        ended = self.status == "ok" and (self.predictions is None or self.predictions.status == "ok")
        ran = not self.rounds or any(row.status == "ok" for row in self.rows)
        return 0 if ended and ran else 1

    def update(self, processes: Mapping[str, Sequence[Process]]) -> None:
        """Work out all rows from the processes so far, by backend in the order of rounds."""
        known = [each for done in processes.values() for each in done if each.status == "ok"]
        for process in known[-1:]:
            self.describe(process)
        self.rows = [_row(row.backend, processes.get(row.backend, ()), self.rounds) for row in self.rows]
        doubts = grouped(((text, each.backend) for each in known for text in each.warnings), itemgetter(0))
        names = {text: dict.fromkeys(name for _, name in told) for text, told in doubts.items()}
        self.warnings = [f"{', '.join(of_text)}: {text}" for text, of_text in names.items()]
        for name, done in processes.items():
            if verdicts := [each.verdict for each in done if each.verdict is not None]:
                self.agreement.backends[name] = next((each for each in verdicts if each.ok is False), verdicts[0])
        if self.agreement.backends:
            self.agreement.conclude([row.backend for row in self.rows])
        timed = {row.backend: row for row in self.rows if row.pass_s is not None}
        agreeing = (name for name, verdict in self.agreement.backends.items() if verdict.green)
        green = timed.keys() & {self.agreement.reference, *agreeing}
        passes = {name: [each.passes_s for each in processes[name]] for name in timed}
        seconds = {name: row.pass_s.median for name, row in timed.items() if row.pass_s}
        fastest = min(green.intersection(BASELINES), key=lambda name: seconds[name], default="")
        for name, row in timed.items():
            row.speedup = {
                key: speedup(baseline, name, passes) if {name, baseline} <= green else None
                for key, baseline in (("pyg", "pyg"), (FASTEST, fastest), *[(PEER, PEER)] * (PEER in timed))
            }
            if "pyg" in timed and row.peak_memory_bytes and timed["pyg"].peak_memory_bytes:
                row.memory_ratio = row.peak_memory_bytes / timed["pyg"].peak_memory_bytes

    def describe(self, process: Process) -> None:
        """Take dataset and machine from a process that came to its end."""
        self.dataset, self.dataset_facts = process.dataset, process.dataset_facts
        self.environment = process.environment


def _row(backend: str, done: Sequence[Process], wanted: int) -> Row:
    if stopped := next((each for each in done if each.status != "ok"), None):
        return Row(backend=backend, status=stopped.status, reason=stopped.reason)
    passes = schema.summary([each.passes_s for each in done])
    if passes is None:
        return Row(backend=backend)
    last = done[-1]
    return Row(
        backend=backend,
        status="ok" if len(done) >= wanted else "pending",
        way=last.way,
        pass_s=passes,
        round_pass_s=[median(each.passes_s) for each in done],
        outputs_per_s=(last.outputs or 0) / passes.median,
        peak_memory_bytes=max(each.peak_memory_bytes or 0 for each in done),
        memory_increase_bytes=max(each.memory_increase_bytes or 0 for each in done),
        prepare_s=median([each.prepare_s or 0.0 for each in done]),
        scores=last.scores,
        bindings=last.bindings,
    )


@dataclass(frozen=True)
class Asked(ResolvedRun):
    """Backends, and the weights and the way that they use them, validated; made by `asked`."""

    mode: schema.Mode
    weights: Path | None
    digest: str


def asked(config: Run, mode: str, specs: list[str], weights: Path | None) -> Asked:
    """Work out what every backend runs.

    Raises:
        ConfigError: an unknown mode or backend, a mode that does not fit the data, or weights that cannot be read.
    """
    try:
        digest = hashlib.sha256(weights.read_bytes()).hexdigest() if weights else ""
    except OSError as error:
        raise ConfigError(f"{weights}: cannot be read: {error.strerror}") from None
    for spec in specs:
        options = {option.partition("=")[0] for option in spec.split(":")[1:]}
        if own := sorted(options & OF_TRAINING):
            raise ConfigError(f"{spec}: {own[0]} is of training, and not of inference; leave it out")
    resolved = resolve(_of_mode(config, mode).changed(train={"cuda_graph": False}), specs)
    way: Any = mode
    return Asked(**vars(resolved), mode=way, weights=weights and weights.absolute(), digest=digest)


def _of_mode(config: Run, mode: str) -> Run:
    """The configuration with the batches that a way goes over.

    Raises:
        ConfigError: there is no such way, or its batches are of another kind of data.
    """
    batch = config.batch
    if mode not in MODES:
        raise ConfigError(f"--mode {mode}: is none of {', '.join(MODES)}{did_you_mean(mode, MODES)}")
    if mode == "sampled":
        if not (batch.draws_neighbors and hasattr(batch, "evaluation")):
            raise ConfigError(
                f"--mode sampled is of batches that draw neighbours, and batch.kind is {batch.kind}; set "
                "batch.kind=neighbors and batch.fanouts, or choose another mode"
            )
        return config.changed(batch={"evaluation": "sampled"})
    if batch.graphs:
        if mode == "layerwise":
            raise ConfigError("--mode layerwise is of one graph, and batch.kind=graphs is of many; leave it out")
        return config
    kind = registry.find("training.batching", batch.undivided).Config
    shared = {name: value for name, value in dict(batch).items() if name in kind.model_fields and name != "kind"}
    return config.model_copy(update={"batch": kind(**shared)})


def infer(
    asked: Asked,
    *,
    rounds: int,
    out: Path,
    roots: Roots,
    force: bool = False,
    predictions: Path | None = None,
    on_event: Callable[[Progress], None] = lambda _: None,
) -> Inference:
    """Write predictions if a file is given, then time the backends of `asked` in turn.

    It is `gnnbench.infer` once that is resolved. A stop ends the running process and returns with status
    "interrupted".

    Args:
        rounds: fresh processes per backend; 0 for predictions alone.
        out: folder for `inference.json` and `rounds/`.
        force: forget what an earlier inference left in `out`.
        predictions: the file for outputs, by the first backend that is not PyG.
        on_event: told of every process before it starts.

    Raises:
        ConfigError: `out` holds an inference of another configuration, mode or weights.
        GnnbenchError: bad data, `out` cannot be written, or the code changed while it ran.
    """
    work = _Inferring(asked, rounds, out, roots, on_event, predictions=predictions)
    work.open(force)
    work.perform(work.predict, work.time)
    record: Inference = work.record
    if record.status == "interrupted":
        first = record.predictions is not None and record.predictions.status != "ok"
        again = "the same command goes on with its predictions" if first else f"--out {out} continues"
        record.reason = f"stopped by {stopping.by()}; {again}"
        work.save()
    return record


@dataclass
class _Inferring(Turns):
    file = files.INFERENCE
    same: ClassVar[Mapping[str, str]] = {"mode": "mode", "checkpoint": "weights"}
    run: Asked
    predictions: Path | None = None

    def open(self, force: bool) -> None:
        """Begin `inference.json`, or go on with the one that is there."""
        names = self.run.backends
        first = next((name for name in REFERENCES if name in names), None)
        reason = "" if first else f"none of {', '.join(REFERENCES)} is among the backends"
        record = Inference(
            mode=self.run.mode,
            checkpoint=str(self.run.weights or ""),
            weights=self.run.digest,
            config=self.run.config,
            rounds=self.rounds,
            rows=[Row(backend=name) for name in names],
            agreement=Parity(reference=first, reason=reason, checked=["outputs of all nodes or graphs"]),
        )
        if self.predictions:
            by = next((name for name in names if not name.startswith("pyg")), names[0])
            record.predictions = Predictions(path=str(self.predictions), backend=by)
        self.begin(record, force)
        self.planned = len(names) * self.rounds + (self.predictions is not None)
        self.order = sorted(names, key=lambda name: name != first)  # as the others are held against it
        self.save()

    def predict(self) -> None:
        """Write the predictions, if they are asked for."""
        if (wanted := self.record.predictions) is None:
            return
        job = self._job(wanted.backend, self.out / "predictions")
        job.predictions = self.predictions
        result = self.result(job, wanted.backend, "predictions")
        wanted.status, wanted.reason = result.status, result.reason
        if result.status == "ok":
            self.record.describe(result)
        self.save()

    def time(self) -> None:
        for round_, name in self.turns(self.order):
            job = self._job(name, self.folder(round_, name))
            kept = job.kept()
            if name == self.record.agreement.reference and round_ == 1:
                job.is_reference = True
                job.lowers = any(backend_sections(each)[1]["train"].get("precision") for each in self.order)
                every = ((each, self.folder(n, each)) for each in self.order for n in range(1, self.rounds + 1))
                if kept and not job.tensors_path.exists() and not all(self._job(*each).kept() for each in every):
                    kept = None  # as others are still to be compared with its outputs
            elif self.reference:
                job.reference = self.reference.tensors_path, str(self.record.agreement.reference)
            result = self.result(job, name, f"round {round_} of {self.rounds}", kept)
            self.results[name].append(result)
            if job.is_reference:
                self._refer(job, result, name)
            self.save()
        if self.reference:
            self.reference.tensors_path.unlink(missing_ok=True)

    def _refer(self, job: Job, result: Process, name: str) -> None:
        """Let others be compared with a process, or with PyG at once where it can do no layer at a time."""
        if result.status == "unsupported" and job.mode == "layerwise":
            job = job.model_copy(update={"mode": "full", "out": self.out / "reference"})
            result = self.result(job, name, "the outputs to compare with, at once")
        if result.status == "ok":
            self.reference = job
        else:
            self.record.agreement.reference, self.record.agreement.reason = None, f"{name} could not run"

    def _job(self, name: str, out: Path) -> Job:
        return Job(
            roots=self.roots,
            out=out,
            code=self.codes[name],
            config=self.run.of(name),
            mode=self.run.mode,
            weights=self.run.weights,
            digest=self.run.digest,
        )
