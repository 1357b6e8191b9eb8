"""Inference: outputs of all nodes by trained weights, on backends in turn, each process checked against PyG.

_process     one backend in a fresh process: at once, a layer at a time, or on sampled neighbourhoods
_record      the table, worked out from the processes of all rounds
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnbench import launch, registry, stopping
from gnnbench.comparison import Progress, ResolvedRun, codes, difference, process, resolve, round_folder
from gnnbench.comparison.parity import REFERENCES, Parity
from gnnbench.config import Run, backend_sections
from gnnbench.datasets import Roots
from gnnbench.errors import ConfigError, did_you_mean
from gnnbench.inference._process import Job
from gnnbench.inference._record import Inference, Predictions, Process, Row
from gnnbench.measure.rounds import rotated
from gnnbench.results import files
from gnnbench.results.schema import MODES

OF_TRAINING = {"cuda_graph", "workers", "halo", "loader", "loader_workers"}  # options that passes have no part in


@dataclass(frozen=True)
class Asked:
    """Weights, the way they are used, and backends, validated; made by `asked`."""

    run: ResolvedRun
    mode: Any
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
    eager = _of_mode(config, mode).changed(train={"cuda_graph": False})
    return Asked(resolve(eager, specs), mode, weights and weights.absolute(), digest)


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
    kind = registry.find("training.batching", "links" if batch.links else "full").Config
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
    work = _Inferring(asked, rounds, out, roots, predictions, on_event)
    work.open(force)
    try:
        with launch.keep_server():
            work.predict()
            work.time()
        work.record.status = "ok"
    except KeyboardInterrupt:
        work.record.status = "interrupted"
        wanted = work.record.predictions
        asked_first = wanted is not None and wanted.status != "ok"
        again = "the same command goes on with its predictions" if asked_first else f"--out {out} continues"
        work.record.reason = f"stopped by {stopping.by()}; {again}"
    work.save()
    return work.record


@dataclass
class _Inferring:
    asked: Asked
    rounds: int
    out: Path
    roots: Roots
    predictions: Path | None
    on_event: Callable[[Progress], None]
    done: int = 0
    processes: dict[str, list[Process]] = field(default_factory=dict)
    reference: Job | None = None

    def open(self, force: bool) -> None:
        """Begin `inference.json`, or go on with the one that is there."""
        files.check_out(self.out, files.INFERENCE)
        self._path, asked = self.out / files.INFERENCE, self.asked
        if force and self._path.exists():
            shutil.rmtree(self.out / "rounds", ignore_errors=True)
        elif self._path.exists():
            old = files.load(Inference, self._path)
            key = difference(old.config, asked.run.config)
            same = {"mode": old.mode == asked.mode, "checkpoint": old.weights == asked.digest}
            if key := key or next((name for name, equal in same.items() if not equal), ""):
                raise ConfigError(
                    f"{self.out} holds an inference of another configuration ({key} differs); choose another "
                    "--out, or replace it with --force"
                )
        names = asked.run.backends
        self.codes = codes(names)
        self.processes = {name: [] for name in names}
        first = next((name for name in REFERENCES if name in names), None)
        reason = "" if first else f"none of {', '.join(REFERENCES)} is among the backends"
        self.record = Inference(
            mode=asked.mode,
            checkpoint=str(asked.weights or ""),
            weights=asked.digest,
            config=asked.run.config,
            rounds=self.rounds,
            rows=[Row(backend=name) for name in names],
            agreement=Parity(reference=first, reason=reason, checked=["outputs of all nodes or graphs"]),
        )
        self.turns = sorted(names, key=lambda name: name != first)  # as the others are held against it
        if self.predictions:
            by = next((name for name in names if not name.startswith("pyg")), names[0])
            self.record.predictions = Predictions(path=str(self.predictions), backend=by)
        self.save()

    def predict(self) -> None:
        """Write the predictions, if they are asked for."""
        if (wanted := self.record.predictions) is None:
            return
        job = self._job(wanted.backend, self.out / "predictions")
        job.predictions = self.predictions
        result = self._run(job, wanted.backend, "predictions")
        wanted.status, wanted.reason = result.status, result.reason
        if result.status == "ok":
            self.record.describe(result)
        self.save()

    def time(self) -> None:
        """Run the rounds; a backend that could not run once is left out from then on."""
        for round_ in range(1, self.rounds + 1):
            for name in rotated(self.turns, round_ - 1):
                if any(each.status != "ok" for each in self.processes[name]):
                    self.done += 1
                    continue
                self._process(name, round_)
                self.save()
        if self.reference:
            self.reference.tensors_path.unlink(missing_ok=True)

    def save(self) -> None:
        """Write what is known."""
        self.record.update(self.processes)
        files.save_json(self.record, self._path)

    def _process(self, name: str, round_: int) -> None:
        job = self._job(name, round_folder(self.out, round_, name))
        kept = job.kept()
        if name == self.record.agreement.reference and round_ == 1:
            job.is_reference = True
            job.lowers = any(backend_sections(each)[1]["train"].get("precision") for each in self.turns)
            folders = (
                (each, round_folder(self.out, n, each)) for each in self.turns for n in range(1, self.rounds + 1)
            )
            if kept and not job.tensors_path.exists() and not all(self._job(*each).kept() for each in folders):
                kept = None  # as others are still to be compared with its outputs
        elif self.reference:
            job.reference = self.reference.tensors_path, str(self.record.agreement.reference)
        result = kept or self._run(job, name, f"round {round_} of {self.rounds}", round_)
        self.done += kept is not None
        self.processes[name].append(result)
        if job.is_reference:
            self._refer(job, result, name)

    def _refer(self, job: Job, result: Process, name: str) -> None:
        """Let others be compared with a process, or with PyG at once where it can do no layer at a time."""
        if result.status == "unsupported" and job.mode == "layerwise":
            job = job.model_copy(update={"mode": "full", "out": self.out / "reference"})
            result = self._run(job, name, "the outputs to compare with, at once")
        if result.status == "ok":
            self.reference = job
        else:
            self.record.agreement.reference, self.record.agreement.reason = None, f"{name} could not run"

    def _job(self, name: str, out: Path) -> Job:
        return Job(
            roots=self.roots,
            out=out,
            code=self.codes[name],
            config=self.asked.run.of(name),
            mode=self.asked.mode,
            weights=self.asked.weights,
            digest=self.asked.digest,
        )

    def _run(self, job: Job, name: str, stage: str, round_: int = 0) -> Process:
        total = len(self.turns) * self.rounds + (self.predictions is not None)
        self.on_event(Progress(stage, name, round_, self.done, total, self.record))
        result = process.execute(job)
        self.done += 1
        return result
