"""Backends in turn, each in fresh processes whose results are kept: what comparisons and inferences share."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from gnnbench import backends as registered
from gnnbench import launch
from gnnbench.comparison import process
from gnnbench.comparison._config import ResolvedRun, difference
from gnnbench.config import backend_sections
from gnnbench.datasets import Roots
from gnnbench.errors import ConfigError
from gnnbench.measure import code
from gnnbench.measure.rounds import rotated
from gnnbench.results import files


@dataclass(frozen=True)
class Progress:
    """A process is about to start."""

    stage: str  # what it is for, in words
    backend: str  # the one that runs, as the user named it
    done: int  # processes finished
    total: int  # all that are planned
    record: Any  # everything known so far


def name_of(backend: str) -> str:
    """Return the name of a backend, with its options, as every file system takes it."""
    return backend.replace(":", ",")


@dataclass
class Turns:
    """Rounds of backends in turn, and a record of them that an equal call goes on with."""

    file: ClassVar[str]  # what the record is called in `out`
    same: ClassVar[Mapping[str, str]] = {}  # what else must be equal to go on, and the field that tells
    run: ResolvedRun
    rounds: int
    out: Path
    roots: Roots
    on_event: Callable[[Progress], None]
    execute: Callable[[Any], Any] = process.execute
    done: int = 0  # processes
    planned: int = 0
    results: dict[str, list[Any]] = field(default_factory=dict)  # of the rounds, by backend
    reference: Any = None  # the job whose tensors others are compared with
    record: Any = None

    def begin(self, record: Any, force: bool, also: Collection[str] = ()) -> None:
        """Keep results in `record`; `force` forgets those in `out`, which are otherwise gone on with.

        Args:
            also: other backends whose code is used.

        Raises:
            ConfigError: `out` holds another kind of result, or one of another configuration.
        """
        files.check_out(self.out, self.file)
        path, self.record = self.out / self.file, record
        self.results = {name: [] for name in self.run.backends}
        kinds = {name: backend_sections(name)[0]["name"] for name in (*self.results, *also)}
        self.codes = {name: code.digest(registered.module_of(kind)) for name, kind in kinds.items()}
        if force and path.exists():
            for name in ("parity", "rounds"):
                shutil.rmtree(self.out / name, ignore_errors=True)
        elif path.exists():
            old = files.load(type(record), path)
            others = (name for name, kept in self.same.items() if getattr(old, kept) != getattr(record, kept))
            if key := difference(old.config, self.run.config) or next(others, ""):
                raise ConfigError(
                    f"{self.out} holds results of another configuration ({key} differs); choose another --out, "
                    "or replace them with --force"
                )

    def perform(self, *steps: Callable[[], None]) -> None:
        """Take steps, whose processes a stop ends."""
        try:
            with launch.keep_server():
                for step in steps:
                    step()
            self.record.status = "ok"
        except KeyboardInterrupt:
            self.record.status = "interrupted"
        self.save()

    def turns(self, backends: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Yield rounds, from 1, with their backends, but for those that could not run once."""
        for round_ in range(1, self.rounds + 1):
            for name in rotated([*backends], round_ - 1):
                if self.ended(name):
                    self.done += 1
                else:
                    yield round_, name

    def ended(self, name: str) -> bool:
        return any(result.status != "ok" for result in self.results[name])

    def result(self, job: Any, name: str, stage: str, kept: Any = None) -> Any:
        """Return the result of a job, which runs unless its result is `kept` from an earlier call."""
        if kept is None:
            self.on_event(Progress(stage, name, self.done, self.planned, self.record))
            kept = self.execute(job)
        self.done += 1
        return kept

    def folder(self, round_: int, backend: str) -> Path:
        """Return where a round of a backend is kept."""
        return self.out / "rounds" / str(round_) / name_of(backend)

    def save(self, *changed: Any) -> None:
        self.record.update(self.results, *changed)
        files.save_json(self.record, self.out / self.file)
