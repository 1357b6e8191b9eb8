"""Backends side by side: the parity gate, then interleaved rounds, each in a fresh process and kept on disk.

parity       the gate: does a backend compute what PyG computes?
process      jobs in fresh processes
_config      what all backends of a comparison share
record       the table, worked out from the results of all rounds
baseline     an earlier comparison, and what is slower now beyond doubt
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnbench import backends as registered
from gnnbench import launch
from gnnbench.comparison import parity, process
from gnnbench.comparison._config import ResolvedRun, difference
from gnnbench.comparison._config import resolve as resolve
from gnnbench.comparison.parity import REFERENCES, BackendParity, Parity, RoundParity
from gnnbench.comparison.parity.judge import Snapshot, judge
from gnnbench.comparison.process import Job
from gnnbench.comparison.record import Comparison, Row
from gnnbench.config import backend_sections
from gnnbench.datasets import Roots
from gnnbench.errors import ConfigError, GnnbenchError
from gnnbench.measure import code
from gnnbench.measure.rounds import rotated
from gnnbench.results import files, schema
from gnnbench.results.schema import Result


@dataclass(frozen=True)
class Progress:
    """A process is about to start, of a comparison or an inference.

    Attributes:
        stage: what it is for, in words.
        backend: the one that runs, as the user named it.
        round: from 1; 0 beside the rounds.
        done, total: processes finished and all that are planned.
        record: everything known so far.
    """

    stage: str
    backend: str
    round: int
    done: int
    total: int
    record: Any


def compare(
    run: ResolvedRun,
    *,
    rounds: int = 3,
    out: Path,
    roots: Roots,
    force: bool = False,
    on_event: Callable[[Progress], None] = lambda _: None,
    execute: Callable[[Job], Result] = process.execute,
) -> Comparison:
    """Check and time the backends of `run`.

    It is `gnnbench.compare` once `run` is resolved. A backend that could not run once is not tried again. What is
    kept in `out` serves more rounds or backends too. A stop ends the running process and returns with status
    "interrupted".

    Args:
        run: as `resolve` makes it.
        out: folder for `comparison.json`, `parity/` and `rounds/`.
        force: forget what an earlier comparison left in `out`.
        on_event: told of every process before it starts.
        execute: runs a job in a fresh process.

    Raises:
        ConfigError: there are no rounds, or `out` holds a comparison of another configuration.
        GnnbenchError: bad data, `out` cannot be written, or the code changed while it was compared.
    """
    if rounds < 1:
        raise ConfigError(f"a comparison of {rounds} rounds measures nothing; give one or more")
    work = _Comparing(run, rounds, out, roots, on_event, execute)
    work.open(force)
    try:
        with launch.keep_server():
            work.gate()
            work.train()
        work.record.status = "ok"
    except KeyboardInterrupt:
        work.record.status = "interrupted"
    work.save()
    return work.record


def stored(out: Path, backend: str) -> list[Result]:
    """The results of `backend` in every finished round of the comparison in `out`, in order."""
    paths = (out / "rounds").glob(f"*/{_folder(backend)}/results.json")
    return [files.load(Result, path) for path in sorted(paths, key=lambda path: int(path.parts[-3]))]


def codes(backends: Collection[str]) -> dict[str, str]:
    """Hash the code of each backend, as it lies on disk now."""
    return {name: code.digest(registered.module_of(backend_sections(name)[0]["name"])) for name in backends}


def round_folder(out: Path, round_: int, backend: str) -> Path:
    """Return where a round of a backend is kept."""
    return out / "rounds" / str(round_) / _folder(backend)


def epochs(comparison: Comparison, out: Path) -> dict[str, list[list[float]]]:
    """Seconds of epochs without warm-up, by backend and round, of the backends that ran every round in `out`."""
    done = [row.backend for row in comparison.rows if row.status == "ok"]
    return {name: schema.times(stored(out, name)[: comparison.rounds]) for name in done}


@dataclass
class _Comparing:
    run: ResolvedRun
    rounds: int
    out: Path
    roots: Roots
    on_event: Callable[[Progress], None]
    execute: Callable[[Job], Result]
    done: int = 0
    planned: int = 0
    cells: dict[str, list[Result]] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)
    reference: Job | None = None

    def open(self, force: bool) -> None:
        """Begin `comparison.json`, or go on with the one that is there."""
        files.check_out(self.out, files.COMPARISON)
        if force and self._path.exists():
            for name in ("parity", "rounds"):
                shutil.rmtree(self.out / name, ignore_errors=True)
        elif self._path.exists() and (
            key := difference(files.load(Comparison, self._path).config, self.run.config)
        ):
            raise ConfigError(
                f"{self.out} holds a comparison of another configuration ({key} differs); "
                "choose another --out, or replace it with --force"
            )
        self.cells = {name: [] for name in self.run.backends}
        self.planned = len({*self.run.backends, *REFERENCES[:1]}) + self.rounds * len(self.run.backends)
        self.codes = codes({*self.run.backends, *REFERENCES})
        self._forget_other_code()
        self.record = Comparison(
            config=self.run.config,
            rounds=self.rounds,
            epochs=self.run.config["train"]["epochs"],
            rows=[Row(backend=name) for name in self.run.backends],
        )
        model = self.run.config["model"]
        self.record.parity = Parity(checked=[*parity.checked(model)], unchecked=[*parity.unchecked(model)])
        self.save()

    def gate(self) -> None:
        """Compare every backend with the first reference that can run."""
        checked = self.record.parity
        self.reference = self._reference()
        self.save(REFERENCES)
        for name in self.run.backends:
            if name not in checked.backends:
                checked.backends[name] = self._checked(name)
                self.save([name])

    def train(self) -> None:
        """Run the rounds; a backend that could not run once is left out from then on."""
        for round_ in range(1, self.rounds + 1):
            for name in rotated(self.run.backends, round_ - 1):
                if self._has_ended(name):
                    self.done += 1
                    continue
                job = self._job("train", name, round_folder(self.out, round_, name))
                result = job.finished() or self._run(job, name, f"round {round_} of {self.rounds}", round_)
                self.cells[name].append(result)
                if result.status == "ok" and job.verdict_path.exists():
                    verdict = RoundParity.model_validate_json(job.verdict_path.read_bytes())
                    self.record.parity.backends[name].rounds.append(verdict)
                self.done += 1
                self.save([name])
                self._learn_rounding(name)
        if self.reference is not None:
            self.reference.tensors_path.unlink(missing_ok=True)

    def _learn_rounding(self, name: str) -> None:
        """Train the reference from other last bits once, if the losses of a backend parted from its own."""
        checked = self.record.parity
        if checked.rounded or not checked.backends[name].losses or checked.reference is None:
            return
        job = self._job("rounding", checked.reference, self.out / "parity" / "rounding")
        result = job.finished()
        if result is None or result.code != job.code:
            self.planned += 1
            result = self._run(job, checked.reference, "how far rounding carries losses")
        checked.rounded = [sample.loss for sample in result.samples]
        but = f", but for {parity.ROUNDED} times what other last bits of first weights make of them"
        checked.checked = [what + but if what == parity.LOSSES else what for what in checked.checked]
        self.save(self.run.backends)

    def _learn_exact(self) -> bool:
        """Let the reference know its tensors in float64, and return whether it now does."""
        assert self.reference is not None
        theirs = Snapshot.load(self.reference.tensors_path)
        if theirs.exact:
            return True
        name, self.planned = str(self.record.parity.reference), self.planned + 1
        job = self._job("exact", name, self.out / "parity" / "exact")
        if self._run(job, name, "parity check in float64").status != "ok":
            return False
        theirs.exact = Snapshot.load(job.tensors_path).tensors
        theirs.save(self.reference.tensors_path)
        job.tensors_path.unlink()
        return True

    def save(self, changed: Collection[str] = ()) -> None:
        """Write what is known, once more of some backends."""
        self.record.update(self.cells, changed)
        files.save_json(self.record, self._path)

    @property
    def _path(self) -> Path:
        return self.out / "comparison.json"

    def _has_ended(self, name: str) -> bool:
        status = self.record.parity.backends[name].status
        return status != "ok" or any(result.status != "ok" for result in self.cells[name])

    def _forget_other_code(self) -> None:
        """Remove what an earlier call left of backends whose code is not the one that runs now."""
        for name, digest in self.codes.items():
            for folder in (self._verdict_path(name).parent, *(self.out / "rounds").glob(f"*/{_folder(name)}")):
                if folder.exists() and _code_of(folder) != digest:
                    shutil.rmtree(folder, ignore_errors=True)

    def _reference(self) -> Job | None:
        """The first backend of `REFERENCES` that can run."""
        checked = self.record.parity.backends
        for name in REFERENCES:
            job = self._job("reference", name, self._verdict_path(name).parent)
            result = job.finished()
            if result is None or result.config != job.config:
                result = self._run(job, name, "parity check")
            if result.status == "ok":
                self.record.dataset, self.record.parity.reference = result.dataset, name
                checked[name] = BackendParity(status="ok", ok=True, code=self.codes[name])
                return job
            checked[name] = BackendParity(status=result.status, reason=result.reason)
        return None

    def _verdict_path(self, name: str) -> Path:
        return self.out / "parity" / _folder(name) / "verdict.json"

    def _checked(self, name: str) -> BackendParity:
        """The verdict on a backend, from disk if it was reached before."""
        path = self._verdict_path(name)
        if path.exists():
            return BackendParity.model_validate_json(path.read_bytes())
        job = self._job("parity", name, path.parent)
        result = self._run(job, name, "parity check")
        if result.status != "ok":
            verdict = BackendParity(status=result.status, reason=result.reason)
        elif self.reference is None:
            verdict = BackendParity(status="ok", reason="there is nothing to compare it with")
        else:
            verdict = _judged(job, self.reference)
            if not verdict.ok and self._learn_exact():
                verdict = _judged(job, self.reference)
        verdict.code = self.codes[name]
        job.tensors_path.unlink(missing_ok=True)
        files.save_json(verdict, path)
        return verdict

    def _job(self, task: process.Kind, name: str, out: Path) -> Job:
        config = (self.run.of_reference if task in ("reference", "exact") else self.run.of)(name)
        job = Job(
            task=task,
            config=config,
            roots=self.roots,
            out=out,
            code=self.codes[name],
        )
        if task == "train" and self.reference is not None and name != self.record.parity.reference:
            job.reference = self.reference.tensors_path, self.reference.config["backend"]["name"]
        return job

    def _run(self, job: Job, name: str, stage: str, round_: int = 0) -> Result:
        self._restore_reference(job)
        self.on_event(Progress(stage, name, round_, self.done, self.planned, self.record))
        result = self.execute(job)
        self.done += not round_
        return result

    def _restore_reference(self, job: Job) -> None:
        """Compute anew what a job is compared with, as an earlier call removed it in the end."""
        compared = job.task == "parity" or job.reference is not None
        if not compared or self.reference is None or self.reference.tensors_path.exists():
            return
        name, self.planned = str(self.record.parity.reference), self.planned + 1
        if (result := self._run(self.reference, name, "parity check")).status != "ok":
            raise GnnbenchError(
                f"{name} ran before, and now it does not ({result.reason}); compare anew with --force"
            )
        if any(verdict.exact for verdict in self.record.parity.backends.values()):
            self._learn_exact()


def _judged(job: Job, reference: Job) -> BackendParity:
    ours, theirs = (Snapshot.load(each.tensors_path) for each in (job, reference))
    return judge(ours, theirs, reference.config["backend"]["name"])


def _code_of(folder: Path) -> str:
    """The code whose result is in a folder; empty if none is, or if an older version left it."""
    try:
        return files.load(Result, folder / "results.json").code
    except GnnbenchError:
        return ""


def _folder(name: str) -> str:
    """The name of a backend, with its options, as every file system takes it."""
    return name.replace(":", ",")
