"""Backends side by side: the parity gate, then interleaved rounds, each in a fresh process and kept on disk.

parity       the gate: does a backend compute what PyG computes?
process      jobs in fresh processes
turns        what all backends share, and their turns, as inferences take them too
record       the table, worked out from the results of all rounds
baseline     an earlier comparison, and what is slower now beyond doubt
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gnnbench.comparison import parity, process
from gnnbench.comparison.parity import REFERENCES, BackendParity, Parity, RoundParity
from gnnbench.comparison.parity.judge import Snapshot, judge
from gnnbench.comparison.process import Job
from gnnbench.comparison.record import Comparison, Row
from gnnbench.comparison.turns import Progress, ResolvedRun, Turns, name_of
from gnnbench.comparison.turns import resolve as resolve
from gnnbench.datasets import Roots
from gnnbench.errors import ConfigError, GnnbenchError
from gnnbench.results import files, schema
from gnnbench.results.schema import Result


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
    work.perform(work.gate, work.train)
    return work.record


def stored(out: Path, backend: str) -> list[Result]:
    """The results of `backend` in every finished round of the comparison in `out`, in order."""
    paths = (out / "rounds").glob(f"*/{name_of(backend)}/results.json")
    return [files.load(Result, path) for path in sorted(paths, key=lambda path: int(path.parts[-3]))]


def epochs(comparison: Comparison, out: Path) -> dict[str, list[list[float]]]:
    """Seconds of epochs without warm-up, by backend and round, of the backends that ran every round in `out`."""
    done = [row.backend for row in comparison.rows if row.status == "ok"]
    return {name: schema.times(stored(out, name)[: comparison.rounds]) for name in done}


@dataclass
class _Comparing(Turns):
    file = files.COMPARISON

    def open(self, force: bool) -> None:
        """Begin `comparison.json`, or go on with the one that is there."""
        names, config = self.run.backends, self.run.config
        model = config["model"]
        record = Comparison(
            config=config,
            rounds=self.rounds,
            epochs=config["train"]["epochs"],
            rows=[Row(backend=name) for name in names],
            parity=Parity(checked=[*parity.checked(model)], unchecked=[*parity.unchecked(model)]),
        )
        self.begin(record, force, also=REFERENCES)
        self.planned = len({*names, REFERENCES[0]}) + self.rounds * len(names)
        self._forget_other_code()
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
        for round_, name in self.turns(self.run.backends):
            job = self._job("train", name, self.folder(round_, name))
            result = self.result(job, name, f"round {round_} of {self.rounds}", job.finished())
            self.results[name].append(result)
            if result.status == "ok" and job.verdict_path.exists():
                verdict = RoundParity.model_validate_json(job.verdict_path.read_bytes())
                self.record.parity.backends[name].rounds.append(verdict)
            self.save([name])
            self._learn_rounding(name)
        if self.reference is not None:
            self.reference.tensors_path.unlink(missing_ok=True)

    def ended(self, name: str) -> bool:
        return self.record.parity.backends[name].status != "ok" or super().ended(name)

    def result(self, job: Job, name: str, stage: str, kept: Result | None = None) -> Result:
        if kept is None:
            self._restore_reference(job)
        return super().result(job, name, stage, kept)

    def _learn_rounding(self, name: str) -> None:
        """Train the reference from other last bits once, if the losses of a backend parted from its own."""
        checked = self.record.parity
        if checked.rounded or not checked.backends[name].losses or checked.reference is None:
            return
        job = self._job("rounding", checked.reference, self.out / "parity" / "rounding")
        result = job.finished()
        if result is None or result.code != job.code:
            result = self._once_more(job, "how far rounding carries losses")
        checked.rounded = result.losses
        but = f", but for {parity.ROUNDED} times what other last bits of first weights make of them"
        checked.checked = [what + but if what == parity.LOSSES else what for what in checked.checked]
        self.save(self.run.backends)

    def _learn_exact(self) -> bool:
        """Let the reference know its tensors in float64, and return whether it now does."""
        theirs = Snapshot.load(self.reference.tensors_path)
        if theirs.exact:
            return True
        job = self._job("exact", self.record.parity.reference, self.out / "parity" / "exact")
        if self._once_more(job, "parity check in float64").status != "ok":
            return False
        theirs.exact = Snapshot.load(job.tensors_path).tensors
        theirs.save(self.reference.tensors_path)
        job.tensors_path.unlink()
        return True

    def _restore_reference(self, job: Job) -> None:
        """Compute anew what a job is compared with, as an earlier call removed it in the end."""
        compared = job.task == "parity" or job.reference is not None
        if not compared or self.reference is None or self.reference.tensors_path.exists():
            return
        if (result := self._once_more(self.reference, "parity check")).status != "ok":
            name = self.record.parity.reference
            raise GnnbenchError(
                f"{name} ran before, and now it does not ({result.reason}); compare anew with --force"
            )
        if any(verdict.exact for verdict in self.record.parity.backends.values()):
            self._learn_exact()

    def _once_more(self, job: Job, stage: str) -> Result:
        """Run a job of the reference that was not planned."""
        self.planned += 1
        return self.result(job, self.record.parity.reference, stage)

    def _forget_other_code(self) -> None:
        """Remove what an earlier call left of backends whose code is not the one that runs now."""
        for name, digest in self.codes.items():
            for folder in (self._verdict_path(name).parent, *(self.out / "rounds").glob(f"*/{name_of(name)}")):
                if folder.exists() and _code_of(folder) != digest:
                    shutil.rmtree(folder, ignore_errors=True)

    def _reference(self) -> Job | None:
        """The first backend of `REFERENCES` that can run."""
        checked = self.record.parity.backends
        for name in REFERENCES:
            job = self._job("reference", name, self._verdict_path(name).parent)
            result = job.finished()
            if result is None or result.config != job.config:
                result = self.result(job, name, "parity check")
            if result.status == "ok":
                self.record.dataset, self.record.parity.reference = result.dataset, name
                checked[name] = BackendParity(status="ok", ok=True, code=self.codes[name])
                return job
            checked[name] = BackendParity(status=result.status, reason=result.reason)
        return None

    def _verdict_path(self, name: str) -> Path:
        return self.out / "parity" / name_of(name) / "verdict.json"

    def _checked(self, name: str) -> BackendParity:
        """The verdict on a backend, from disk if it was reached before."""
        path = self._verdict_path(name)
        if path.exists():
            return BackendParity.model_validate_json(path.read_bytes())
        job = self._job("parity", name, path.parent)
        result = self.result(job, name, "parity check")
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
        job = Job(task=task, config=config, roots=self.roots, out=out, code=self.codes[name])
        if task == "train" and self.reference is not None and name != self.record.parity.reference:
            job.reference = self.reference.tensors_path, self.reference.config["backend"]["name"]
        return job


def _judged(job: Job, reference: Job) -> BackendParity:
    ours, theirs = (Snapshot.load(each.tensors_path) for each in (job, reference))
    return judge(ours, theirs, reference.config["backend"]["name"])


def _code_of(folder: Path) -> str:
    """The code whose result is in a folder; empty if none is, or if an older version left it."""
    try:
        return files.load(Result, folder / "results.json").code
    except GnnbenchError:
        return ""
