"""Backends in turn: what they share and each makes of it, and fresh processes whose results are kept."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

from gnnbench import backends as registered
from gnnbench import launch
from gnnbench.backends.base import Backend
from gnnbench.comparison import process
from gnnbench.config import Run, backend_sections, validate
from gnnbench.datasets import Roots
from gnnbench.errors import BackendUnavailable, ConfigError, did_you_mean
from gnnbench.measure import code
from gnnbench.measure.rounds import rotated
from gnnbench.results import files


@dataclass(frozen=True)
class ResolvedRun:
    """A run that several backends train alike, validated; made by `resolve`."""

    backends: list[str]  # `"NAME[:key=value]..."`, a row of the table each
    config: dict[str, Any]  # what all share, as it is stored, without options of backends that were left alone

    def of(self, backend: str) -> dict[str, Any]:
        """Return what a backend runs: its own options before those that all share."""
        section, own = backend_sections(backend)
        kind = _type(section["name"])
        shared = self.config["backend"] if kind and kind.takes_rewrites else {}
        others = {name: {**self.config[name], **content} for name, content in own.items()}
        return {**self.config, **others, "backend": {**shared, **section}}

    def of_reference(self, backend: str) -> dict[str, Any]:
        """Return what the reference runs: in bfloat16 if any backend does, so that it shows how far that moves."""
        config = self.of(backend)
        in_bf16 = any(backend_sections(each)[1]["train"].get("precision") == "bf16" for each in self.backends)
        return {**config, "train": config["train"] | {"precision": "bf16"}} if in_bf16 else config


def resolve(run: Run, specs: Sequence[str]) -> ResolvedRun:
    """Work out what every backend runs.

    Rounds take the place of repeats, and all backends run the same epochs. Steps are recorded, and products are in
    bfloat16, only where a backend's own options say so; where `run` does, every backend runs without and with it.
    PyG runs on the GPU if it is compared with what runs there.

    Raises:
        ConfigError: there is no backend, or one is unknown or has a bad option.
    """
    known, named = registered.names(), [backend_sections(spec)[0]["name"] for spec in specs]
    if unknown := [name for name in named if name not in known]:
        raise ConfigError(*(f"unknown backend {name!r}{did_you_mean(name, known)}" for name in unknown))
    if not specs:
        raise ConfigError("a comparison needs a backend; give one or more, such as pyg,isplib")
    rows = _rows(run, specs)
    changes: dict[str, Any] = {"repeats": 1, "patience": 0, "checkpoint_every": 0, "workers": 1}
    changes |= {"cuda_graph": False, "precision": "float32"}
    if run.train.device == "auto" and torch.cuda.is_available() and any(map(_needs_gpu, rows)):
        changes["device"] = "cuda"
    run = run.changed(train=changes)
    config = run.model_dump(mode="json", serialize_as_any=True)
    config["backend"] = run.backend.model_dump(mode="json", exclude_unset=True)
    resolved = ResolvedRun(rows, config)
    for row in rows:
        if ":" in row:  # a name alone asks for nothing that was not validated with `run`
            validate(resolved.of(row), f"backend {row!r}")
    return resolved


def difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    """The first key in which two resolved configurations differ, the backends' names aside."""
    for section in new:
        ours, theirs = new[section], old.get(section, {})
        for key in sorted({*ours, *theirs}):
            if (section, key) != ("backend", "name") and ours.get(key) != theirs.get(key):
                return f"{section}.{key}"
    return ""


def _rows(run: Run, specs: Sequence[str]) -> list[str]:
    """Every backend as it is, and beside it what `run` asks for: recorded steps, products in bfloat16, both."""
    asked = ["cuda_graph=true"] * run.train.cuda_graph + ["precision=bf16"] * (run.train.precision == "bf16")
    result = [*specs]
    for option in asked:
        key = option.partition("=")[0]
        decided = {spec: key in backend_sections(spec)[1]["train"] for spec in result}  # by its own options
        result = [row for spec in result for row in [spec, *[f"{spec}:{option}"] * (not decided[spec])]]
    return list(dict.fromkeys(result))


def _needs_gpu(spec: str) -> bool:
    section, own = backend_sections(spec)
    kind = _type(section["name"])
    if kind is None:
        return False
    on_gpu = kind.kernels is not None and kind.kernels.device_type == "cuda"
    return on_gpu or bool(own["train"].get("cuda_graph"))


def _type(name: str) -> type[Backend] | None:
    """None if what another package brought cannot be loaded."""
    try:
        return registered.backend_type(name)
    except BackendUnavailable:
        return None


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
        """Keep results in `record`, whose backends and `also` others run; `force` forgets those that `out` has.

        Raises:
            ConfigError: `out` holds results of another configuration.
        """
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
        return self.out / "rounds" / str(round_) / name_of(backend)

    def save(self, *changed: Any) -> None:
        self.record.update(self.results, *changed)
        files.save_json(self.record, self.out / self.file)
