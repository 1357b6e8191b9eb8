"""The YAML file of a sweep: a run, the axes along which it varies, and the trials that these span."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from gnnbench import backends, cells, config, datasets, documents
from gnnbench.cells import Outcome
from gnnbench.config import BackendConfig, Overrides, Positive, Run, Section
from gnnbench.errors import BackendUnavailable, ConfigError, did_you_mean
from gnnbench.results import files
from gnnbench.results.schema import Record, Result
from gnnbench.training import run

WHOLE = ("dataset", "backend")  # axes whose values replace a section, written as on the command line
OF_SWEEP = ("train.seed", "train.repeats")
MOST = 10_000  # cells


class Trial(Record):
    """A run as `gnnbench train` does it."""

    key: str  # the name of its folder, which another configuration, seed or kind of timing does not share
    values: dict[str, Any]  # of the axes, by key
    seed: int
    config: dict[str, Any]  # the resolved configuration

    @property
    def name(self) -> str:
        """The configuration in words: `"hidden 64, cora, isplib"`."""
        return label(self.values)

    def run(self, work: Work, tell: Callable[[str], None]) -> Outcome:
        """Train from the first epoch on."""
        result = run.start(config.validate(self.config, self.key), roots=work.roots, out=work.out)
        return Outcome(status=result.status, reason=result.reason)

    def result(self, out: Path) -> Result:
        """Read the result that `run` left in `out`; raises ConfigError as `files.load`."""
        return files.load(Result, out / files.RUN)


def label(values: Mapping[str, Any]) -> str:
    """Values of axes in words; keys are cut to their last part where that tells them apart."""
    short = {key: key.rpartition(".")[2] for key in values}
    names = {key: last if [*short.values()].count(last) == 1 else key for key, last in short.items()}
    return ", ".join(f"{names[key]} {value}" if "." in key else str(value) for key, value in values.items())


class Work(cells.Work):
    """A trial and where it runs, in a fresh process so that nothing it does can end the sweep."""

    cell: Trial


class SweepConfig(Section):
    """The keys of the file."""

    run: Path = Field(description="configuration of the run; relative to the folder of this file")
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        min_length=1, description="values by key: `section.key`, `dataset` or `backend`"
    )
    repeats: Positive = Field(
        1, description="seeds of every configuration: train.seed of the run, and those after it"
    )


@dataclass(frozen=True)
class Plan:
    """Trials that a file asks for."""

    name: str  # of the file, without its suffix
    config: dict[str, Any]  # the resolved run that the axes vary
    axes: dict[str, list[Any]]  # values by key
    repeats: int  # seeds of every configuration
    timed: bool  # trials have the machine to themselves
    trials: list[Trial]  # every configuration with the first seed, then with the next, so that a table fills early


def load(path: Path, overrides: Overrides = (), *, timed: bool = True) -> Plan:
    """Read and validate a sweep, all its configurations too.

    Args:
        overrides: of the run, as `gnnbench.config.load` takes them.

    Raises:
        ConfigError: with every problem of the file and of its run, one sentence each.
    """
    raw = documents.read(path, [*SweepConfig.model_fields])
    problems: list[str] = []
    try:
        asked = SweepConfig.model_validate(raw)
    except ValidationError as error:
        problems = [f"{path}: {config.sentence(each, SweepConfig)}" for each in error.errors()]
    base: dict[str, Any] = {}
    if isinstance(raw.get("run"), str):
        file = path.parent / raw["run"]
        try:
            base = documents.read(file, [*Run.model_fields])
            first = config.validate(base, str(file), config.override(base, overrides))
        except ConfigError as error:
            base, problems = {}, [*problems, *error.problems]
    grid: Any = raw.get("grid") if isinstance(raw.get("grid"), dict) else {}
    axes = {key: values for key, values in grid.items() if isinstance(values, list)}
    sections = {name: held for name, held in base.items() if isinstance(held, dict)}
    keys = [*WHOLE, *(f"{section}.{key}" for section, held in sections.items() for key in held)]
    problems += [f"{path}: grid.{problem}" for problem in _axis_problems(axes, keys)]
    where, runs = f"{path}: grid", []
    if base and not problems:
        for each in itertools.product(*axes.values()):  # the last axis varies fastest
            values = dict(zip(axes, each, strict=True))
            try:
                made = config.validate(_applied(base, values), where)
                with suppress(BackendUnavailable):
                    backends.load(made.backend)
                runs.append((values, made))
            except ConfigError as error:
                problems += [text if text.startswith(where) else f"{where}: {text}" for text in error.problems]
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    seeds = range(first.train.seed, first.train.seed + asked.repeats)
    trials = [_trial(values, made, seed, timed) for seed in seeds for values, made in runs]
    return Plan(path.stem, run.resolved(first), asked.grid, asked.repeats, timed, trials)


def _axis_problems(axes: Mapping[Any, Sequence[Any]], keys: Sequence[str]) -> Iterator[str]:
    for key, values in axes.items():
        if key in OF_SWEEP:
            yield f"{key}: every configuration runs with the same seeds; give their number as repeats"
        elif key not in WHOLE and (not isinstance(key, str) or "." not in key):
            hint = did_you_mean(str(key), keys)
            yield f"{key}: is neither section.key, such as model.hidden, nor dataset nor backend{hint}"
        texts = [json.dumps(value, default=str) for value in values]
        for text in dict.fromkeys(text for text in texts if texts.count(text) > 1):
            yield f"{key}: holds {text} more than once"
    if (cells := math.prod(map(len, axes.values()))) > MOST:
        yield f"{next(iter(axes))}: the grid spans {cells:,} configurations, and a sweep at most {MOST:,}"


def _trial(values: dict[str, Any], made: Run, seed: int, timed: bool) -> Trial:
    # A run that was stopped begins anew, so that nothing is timed in two halves: checkpoints are of no use.
    resolved = run.resolved(made.changed(train={"seed": seed, "repeats": 1, "checkpoint_every": 0}))
    content = json.dumps([resolved, timed], sort_keys=True).encode()
    words = re.sub(r"[^\w.=]+", "-", label(values))[:60].strip("-.")
    key = f"{words}-seed-{seed}-{hashlib.sha256(content).hexdigest()[:10]}"
    return Trial(key=key, values=values, seed=seed, config=resolved)


def _applied(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of the run with the values of the axes; whole sections first."""
    raw = dict(base)
    if "dataset" in values:
        dataset = values["dataset"]
        raw["dataset"] = datasets.parse(dataset) if isinstance(dataset, str) else dataset
    if "backend" in values:
        raw["backend"], own = config.backend_sections(str(values["backend"]))
        raw |= {name: {**(raw.get(name) or {}), **content} for name, content in own.items() if content}
    raw["backend"] = {"name": BackendConfig().name, **(raw.get("backend") or {})}
    for key, value in values.items():
        section, dot, name = key.partition(".")
        if dot:
            raw[section] = {**(raw.get(section) or {}), name: value}
    return raw
