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
from gnnbench.config import BackendConfig, Overrides, Positive, Run, RunConfig, Section
from gnnbench.errors import BackendUnavailable, ConfigError, did_you_mean
from gnnbench.results import files
from gnnbench.results.schema import Record, Result
from gnnbench.training import run, start

WHOLE = ("dataset", "backend")  # axes whose values replace a section, written as on the command line
OF_SWEEP = ("train.seed", "train.repeats")
MOST = 10_000  # cells


class Trial(Record):
    """A run as `gnnbench train` does it.

    Attributes:
        key: the name of its folder, which another configuration, seed or kind of timing does not share.
        values: of the axes, by key.
        config: the resolved configuration.
        timed: whether it has the machine to itself.
    """

    key: str
    values: dict[str, Any]
    seed: int
    config: dict[str, Any]
    timed: bool = True

    @property
    def name(self) -> str:
        """The configuration in words: `"hidden 64, cora, isplib"`."""
        return label(self.values)

    def run(self, work: Work, tell: Callable[[str], None]) -> Outcome:
        """Train from the first epoch on."""
        result = start.run(config.validate(self.config, self.key), roots=work.roots, out=work.out)
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
    """Trials that a file asks for.

    Attributes:
        name: of the file, without its suffix.
        config: the resolved run that the axes vary.
        axes: values by key.
        repeats: seeds of every configuration.
        timed: whether trials have the machine to themselves.
        trials: every configuration with the first seed, then with the next, so that a table fills early.
    """

    name: str
    config: dict[str, Any]
    axes: dict[str, list[Any]]
    repeats: int
    timed: bool
    trials: list[Trial]


def load(path: Path, overrides: Overrides = (), *, timed: bool = True) -> Plan:
    """Read and validate a sweep, all its configurations too.

    Args:
        overrides: of the run, as `gnnbench.config.load` takes them.

    Raises:
        ConfigError: with every problem of the file and of its run, one sentence each.
    """
    raw = documents.read(path, [*SweepConfig.model_fields])
    problems = []
    try:
        SweepConfig.model_validate(raw)
    except ValidationError as error:
        problems = [f"{path}: {config.sentence(each, SweepConfig)}" for each in error.errors()]
    grid: Any = raw.get("grid") if isinstance(raw.get("grid"), dict) else {}
    axes = {key: values for key, values in grid.items() if isinstance(values, list)}
    base, run_problems = _base(path, raw.get("run"), overrides)
    problems += run_problems
    sections = {name: held for name, held in (base or {}).items() if isinstance(held, dict)}
    keys = [*WHOLE, *(f"{section}.{key}" for section, held in sections.items() for key in held)]
    problems += [f"{path}: grid.{problem}" for problem in _axis_problems(axes, keys)]
    few = math.prod(map(len, axes.values())) <= MOST
    spanned = itertools.product(*axes.values()) if few else ()  # the last axis varies fastest
    configurations = [dict(zip(axes, values, strict=True)) for values in spanned]
    if base and not problems:
        problems += _configuration_problems(f"{path}: grid", base, configurations)
    if problems or base is None:
        raise ConfigError(*dict.fromkeys(problems))
    plan = SweepConfig.model_validate(raw)
    first = config.validate(base, str(path)).train.seed
    trials = [
        _trial(base, values, seed, timed, str(path))
        for seed in range(first, first + plan.repeats)
        for values in configurations
    ]
    return Plan(path.stem, run.resolved(config.validate(base, "")), plan.grid, plan.repeats, timed, trials)


def _base(path: Path, named: Any, overrides: Overrides) -> tuple[dict[str, Any] | None, list[str]]:
    """The sections of the run, and what is wrong with them; none where the file names no run."""
    if not isinstance(named, str):
        return None, []
    file = path.parent / named
    try:
        raw = documents.read(file, [*RunConfig.model_fields])
        config.validate(raw, str(file), config.override(raw, overrides))
    except ConfigError as error:
        return None, [*error.problems]
    return raw, []


def _axis_problems(axes: Mapping[Any, Sequence[Any]], keys: Sequence[str]) -> Iterator[str]:
    for key, values in axes.items():
        if key in OF_SWEEP:
            yield f"{key}: every configuration runs with the same seeds; give their number as repeats"
        elif key not in WHOLE and (not isinstance(key, str) or "." not in key):
            yield f"{key}: is neither section.key, such as model.hidden, nor dataset nor backend" + (
                did_you_mean(str(key), keys)
            )
        texts = [json.dumps(value, default=str) for value in values]
        for text in dict.fromkeys(text for text in texts if texts.count(text) > 1):
            yield f"{key}: holds {text} more than once"
    if (cells := math.prod(map(len, axes.values()))) > MOST:
        yield f"{next(iter(axes))}: the grid spans {cells:,} configurations, and a sweep at most {MOST:,}"


def _configuration_problems(
    where: str, base: Mapping[str, Any], configurations: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    for values in configurations:
        try:
            checked = config.validate(_applied(base, values), where)
            with suppress(BackendUnavailable):
                backends.load(checked.backend)
        except ConfigError as error:
            yield from (each if each.startswith(where) else f"{where}: {each}" for each in error.problems)


def _trial(base: Mapping[str, Any], values: Mapping[str, Any], seed: int, timed: bool, where: str) -> Trial:
    raw = _applied(base, values)
    raw["backend"] = {"name": BackendConfig().name, **(raw.get("backend") or {})}
    # A run that was stopped begins anew, so that nothing is timed in two halves: checkpoints are of no use.
    raw["train"] = {**(raw.get("train") or {}), "seed": seed, "repeats": 1, "checkpoint_every": 0}
    checked: Run = config.validate(raw, where)
    resolved = run.resolved(checked)
    content = json.dumps([resolved, timed], sort_keys=True).encode()
    words = re.sub(r"[^\w.=]+", "-", label(values))[:60].strip("-.")
    key = f"{words}-seed-{seed}-{hashlib.sha256(content).hexdigest()[:10]}"
    return Trial(key=key, values=dict(values), seed=seed, config=resolved, timed=timed)


def _applied(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of the run with the values of the axes; whole sections first."""
    raw = dict(base)
    if "dataset" in values:
        dataset = values["dataset"]
        raw["dataset"] = datasets.parse(dataset) if isinstance(dataset, str) else dataset
    if "backend" in values:
        raw["backend"], own = config.backend_sections(str(values["backend"]))
        raw |= {name: {**(raw.get(name) or {}), **content} for name, content in own.items() if content}
    for key, value in values.items():
        section, dot, name = key.partition(".")
        if dot:
            raw[section] = {**(raw.get(section) or {}), name: value}
    return raw
