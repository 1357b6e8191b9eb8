"""Backends side by side: the parity gate, then interleaved rounds, each in a fresh process and kept on disk.

parity       the gate: does a backend compute what PyG computes?
process      one job in a fresh process
record       the table, worked out from the results of all rounds
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from gnnbench import backends as registered
from gnnbench.backends.base import Backend
from gnnbench.compare import parity, process
from gnnbench.compare.parity import BackendParity
from gnnbench.compare.process import Job
from gnnbench.compare.record import Comparison, Row
from gnnbench.config import RunConfig, backend_sections, validate
from gnnbench.datasets import Roots
from gnnbench.errors import BackendUnavailable, ConfigError, did_you_mean
from gnnbench.results import files
from gnnbench.results.schema import Result

REFERENCES = ("pyg", "pyg-sparse", "reference")


@dataclass(frozen=True)
class Progress:
    """A process is about to start.

    Attributes:
        stage: what it is for.
        backend: who runs, as it was asked for.
        round: from 1; 0 in the parity stage.
        done, total: processes finished and all that are planned.
        comparison: everything known so far.
    """

    stage: Literal["parity", "train"]
    backend: str
    round: int
    done: int
    total: int
    comparison: Comparison


def compare(
    config: RunConfig[Any, Any],
    backends: Sequence[str],
    *,
    rounds: int = 3,
    epochs: int | None = None,
    out: Path,
    roots: Roots,
    force: bool = False,
    on_event: Callable[[Progress], None] = lambda _: None,
    execute: Callable[[Job], Result] = process.execute,
) -> Comparison:
    """Check and time `backends` on the run that `config` describes.

    Every backend runs in a fresh process per round, in an order that rotates. A backend that crashes, runs
    out of memory or is not supported becomes a row with that status and is not tried again. What is done
    is kept under `out`: calling again with the same configuration continues, with more rounds or backends
    too. Ctrl-C ends the running process and returns with status "interrupted".

    Args:
        config: its backend's options apply to every backend that takes them; repeats and early stopping
            do not apply, as rounds repeat and all backends run the same epochs.
        backends: `"NAME[:key=value]..."` each, with options of its own before those of `config`. Where its
            `train.cuda_graph` is true, each runs without and with it.
        epochs: replaces `config.train.epochs`.
        out: folder for `comparison.json`, `parity/` and `rounds/`.
        force: forget what an earlier comparison left in `out`.
        on_event: told of every process before it starts.
        execute: runs a job in a fresh process.

    Raises:
        ConfigError: unknown backends or options, or `out` holds a comparison of another configuration.
        GnnbenchError: bad data, or `out` cannot be written.
    """
    named = [backend_sections(spec)[0]["name"] for spec in backends]
    if unknown := [name for name in named if name not in registered.names()]:
        raise ConfigError(
            *(f"unknown backend {name!r}{did_you_mean(name, registered.names())}" for name in unknown)
        )
    if not backends or rounds < 1:
        raise ConfigError(f"a comparison needs a backend and a round, found {list(backends)} and {rounds} rounds")
    specs = list(dict.fromkeys(_with_recorded(backends) if config.train.cuda_graph else backends))
    work = _Comparing(_resolved(config, epochs, specs), specs, rounds, out, roots, on_event, execute)
    for spec in specs:
        validate(work.config_of(spec), f"backend {spec!r}")
    work.open(force)
    try:
        work.gate()
        work.train()
        work.record.status = "ok"
    except KeyboardInterrupt:
        work.record.status = "interrupted"
    work.save()
    return work.record


def order(backends: Sequence[str], round_: int) -> list[str]:
    """The backends as round `round_` (from 1) runs them: rotated, so that each comes first equally often."""
    first = (round_ - 1) % len(backends)
    return [*backends[first:], *backends[:first]]


def stored(out: Path, backend: str) -> list[Result]:
    """What every round of a comparison in `out` that has ended found for `backend`, in their order."""
    paths = (out / "rounds").glob(f"*/{_folder(backend)}/results.json")
    return [files.load(Result, path) for path in sorted(paths, key=lambda path: int(path.parts[-3]))]


@dataclass
class _Comparing:
    config: dict[str, Any]
    backends: list[str]
    rounds: int
    out: Path
    roots: Roots
    on_event: Callable[[Progress], None]
    execute: Callable[[Job], Result]
    done: int = 0
    cells: dict[str, list[Result]] = field(default_factory=dict)

    def open(self, force: bool) -> None:
        """Begin `comparison.json`, or go on with the one that is there."""
        if force and self._path.exists():
            for name in ("parity", "rounds"):
                shutil.rmtree(self.out / name, ignore_errors=True)
        elif self._path.exists() and (key := _difference(files.load(Comparison, self._path).config, self.config)):
            raise ConfigError(
                f"{self.out} holds a comparison of another configuration ({key} differs); "
                "choose another --out, or replace it with --force"
            )
        self.cells = {name: [] for name in self.backends}
        self.record = Comparison(
            config=self.config,
            rounds=self.rounds,
            epochs=self.config["train"]["epochs"],
            rows=[Row(backend=name) for name in self.backends],
        )
        self.save()

    def gate(self) -> None:
        """Compare every backend with the first reference that can run."""
        checked = self.record.parity
        reference = self._reference()
        for name in self.backends:
            if name not in checked.backends:
                checked.backends[name] = self._checked(name, reference)
                self._judge()
        if reference is not None:
            reference.tensors_path.unlink(missing_ok=True)
        self._judge()

    def train(self) -> None:
        """Run the rounds; a backend that could not run once is left out from then on."""
        for round_ in range(1, self.rounds + 1):
            for name in order(self.backends, round_):
                if self._has_ended(name):
                    self.done += 1
                    continue
                job = self._job("train", name, self.out / "rounds" / str(round_) / _folder(name))
                self.cells[name].append(job.finished() or self._run(job, name, "train", round_))
                self.done += 1
                self.save()

    def save(self) -> None:
        """Write what is known."""
        self.record.update(self.cells)
        files.save_json(self.record, self._path)

    @property
    def _path(self) -> Path:
        return self.out / "comparison.json"

    def _has_ended(self, name: str) -> bool:
        found = self.record.parity.backends[name].status
        return found != "ok" or any(result.status != "ok" for result in self.cells[name])

    def _reference(self) -> Job | None:
        """The first backend of `REFERENCES` that can run, with its tensors on disk if they are still needed."""
        checked = self.record.parity.backends
        for name in REFERENCES:
            job = self._job("reference", name, self._verdict_path(name).parent)
            result = job.finished()
            if result is None or (
                result.status == "ok" and not job.tensors_path.exists() and self._unchecked(name)
            ):
                result = self._run(job, name, "parity")
            if result.status == "ok":
                self.record.dataset, self.record.parity.reference = result.dataset, name
                checked[name] = BackendParity(status="ok", ok=True)
                return job
            checked[name] = BackendParity(status=result.status, reason=result.reason)
        return None

    def _unchecked(self, reference: str) -> bool:
        """Whether any backend has still to be compared with `reference`."""
        return any(name != reference and not self._verdict_path(name).exists() for name in self.backends)

    def _verdict_path(self, name: str) -> Path:
        return self.out / "parity" / _folder(name) / "verdict.json"

    def _checked(self, name: str, reference: Job | None) -> BackendParity:
        """The verdict on a backend, from disk if it was reached before."""
        path = self._verdict_path(name)
        if path.exists():
            return BackendParity.model_validate_json(path.read_bytes())
        job = self._job("parity", name, path.parent)
        result = self._run(job, name, "parity")
        if result.status != "ok":
            found = BackendParity(status=result.status, reason=result.reason)
        elif reference is None:
            found = BackendParity(status="ok", reason="there is nothing to compare it with")
        else:
            found = parity.check(job.tensors_path, reference.tensors_path, reference.config["backend"]["name"])
        job.tensors_path.unlink(missing_ok=True)
        files.save_json(found, path)
        return found

    def _judge(self) -> None:
        """Sum the verdicts up and write them."""
        found = self.record.parity
        verdicts = {name: found.backends[name].ok for name in self.backends if name in found.backends}
        wrong = [name for name, ok in verdicts.items() if ok is False]
        found.ok = not wrong if found.reference else None
        if found.reference is None:
            found.reason = f"parity could not be established: none of {', '.join(REFERENCES)} could run"
        elif wrong:
            found.reason = "; ".join(f"{name}: {found.backends[name].reason}" for name in wrong)
        self.save()

    def config_of(self, name: str) -> dict[str, Any]:
        """The configuration that a backend runs: its own options before those that all share."""
        section, train = backend_sections(name)
        shared = self.config["backend"] if _takes_rewrites(section["name"]) else {}
        return {
            **self.config,
            "train": {**self.config["train"], **train},
            "backend": {**shared, **section},
        }

    def _job(self, task: Literal["reference", "parity", "train"], name: str, out: Path) -> Job:
        config = self.config_of(name)
        if task != "train":
            config = parity.checked(config)
        return Job(task=task, config=config, raw=self.roots.raw, cache=self.roots.cache, out=out)

    def _run(self, job: Job, name: str, stage: Literal["parity", "train"], round_: int = 0) -> Result:
        total = len({*self.backends, *REFERENCES[:1]}) + self.rounds * len(self.backends)
        self.on_event(Progress(stage, name, round_, self.done, total, self.record))
        result = self.execute(job)
        self.done += stage == "parity"
        return result


def _folder(name: str) -> str:
    """The name of a backend, with its options, as every file system takes it."""
    return name.replace(":", ",")


def _with_recorded(backends: Sequence[str]) -> list[str]:
    """Every backend as it is, and beside it a row of its recorded steps."""
    found = []
    for spec in backends:
        found += [spec] if "cuda_graph" in backend_sections(spec)[1] else [spec, f"{spec}:cuda_graph=true"]
    return found


def _resolved(config: RunConfig[Any, Any], epochs: int | None, specs: Sequence[str]) -> dict[str, Any]:
    """The configuration that every backend runs, whole but for the options that the user left alone.

    Steps are recorded only where a backend's own options say so. PyG runs on the GPU if it is compared with
    what runs there.
    """
    raw = config.model_dump(mode="json", serialize_as_any=True)
    raw["backend"] = config.backend.model_dump(mode="json", exclude_unset=True)
    raw["train"] |= {"repeats": 1, "patience": 0, "checkpoint_every": 0, "cuda_graph": False}
    if raw["train"]["device"] == "auto" and torch.cuda.is_available() and any(map(_needs_gpu, specs)):
        raw["train"]["device"] = "cuda"
    if epochs is not None:
        raw["train"]["epochs"] = epochs
    validate(raw, "comparison")
    return raw


def _needs_gpu(spec: str) -> bool:
    section, train = backend_sections(spec)
    kind = _type(section["name"])
    if kind is None:
        return False
    return bool(train.get("cuda_graph")) or (kind.kernels is not None and kind.kernels.device_type == "cuda")


def _takes_rewrites(name: str) -> bool:
    kind = _type(name)
    return kind is not None and kind.takes_rewrites


def _type(name: str) -> type[Backend] | None:
    """None if what another package brought cannot be loaded."""
    try:
        return registered.backend_type(name)
    except BackendUnavailable:
        return None


def _difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    """The first key in which two resolved configurations differ, the backends' names aside."""
    for section in new:
        ours, theirs = new[section], old.get(section, {})
        for key in sorted({*ours, *theirs}):
            if (section, key) != ("backend", "name") and ours.get(key) != theirs.get(key):
                return f"{section}.{key}"
    return ""
