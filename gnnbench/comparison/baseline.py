"""Epochs of an earlier comparison as a baseline: what is slower now beyond doubt, on the same machine."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

from pydantic import Field

from gnnbench import stats
from gnnbench.comparison.turns import ResolvedRun, difference
from gnnbench.errors import ConfigError, did_you_mean
from gnnbench.measure import environment
from gnnbench.results import files
from gnnbench.results.schema import Ratio, Record

LEVEL = 0.05  # of false alarms, of all backends together
DEVIATIONS = 4  # of rounds from each other, median ones, that a slowdown must exceed: machines drift
YARDSTICK = "pyg"  # whose code is not ours: where it is slower too, it is the machine
Rounds = Mapping[str, Sequence[Sequence[float]]]  # seconds of epochs without warm-up, by backend and round
NAME = re.compile(r"[\w.-]+")


class Baseline(Record):
    """A comparison kept for later ones."""

    schema_version: Literal[1] = 1
    config: dict[str, Any] = Field(description="the resolved configuration")
    environment: dict[str, Any]
    rounds: dict[str, list[list[float]]] = Field(description="seconds of epochs, by backend and round")


class Slowdown(Ratio):
    """Epochs over those of a baseline; above 1 is slower."""

    p: float = Field(description="one-sided rank test of rounds, that it is above the limit")
    spread: float = Field(
        description="of the medians of rounds: four median absolute deviations over their median, of either side"
    )

    def beyond(self, limit: float, level: float) -> bool:
        """Return whether interval, rank test and spread all say that it is above the limit."""
        return self.low > 1 + limit and self.p <= level and self.ratio > 1 + self.spread


class Change(Record):
    """A backend beside its baseline."""

    backend: str
    slowdown: Slowdown | None = Field(description="of its epochs in seconds; None: it did not run")
    beside_pyg: Slowdown | None = Field(None, description="of its epochs over those of pyg in the same round")
    regressed: bool = Field(description="slower than the limit allows, beyond doubt")


class Against(Record):
    """A comparison beside a baseline."""

    name: str
    revision: str = Field("", description="of the code that the baseline ran; empty where it is not known")
    limit: float = Field(description="slowdown that is tolerated, such as 0.05")
    changes: list[Change]

    @property
    def regressed(self) -> bool:
        """Return whether any backend is slower beyond doubt, or does not run any more."""
        return any(change.regressed for change in self.changes)


def path(cache: Path, name: str) -> Path:
    """Where a baseline is kept.

    Raises:
        ConfigError: it cannot be the name of a file.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(f"baseline {name!r}: a name has letters, digits, dots and dashes only")
    return cache / "baselines" / f"{name}.json"


def save(baseline: Baseline, cache: Path, name: str) -> None:
    """Keep a baseline under a name, in place of what it named before.

    Raises:
        ConfigError: no backend ran to its end.
        GnnbenchError: the cache cannot be written.
    """
    if not baseline.rounds:
        raise ConfigError(f"baseline {name!r} is not saved: no backend ran to its end")
    files.save_json(baseline, path(cache, name))


def load(cache: Path, name: str) -> Baseline:
    """A baseline that was saved.

    Raises:
        ConfigError: there is none of this name.
    """
    file = path(cache, name)
    if not file.exists():
        known = sorted(each.stem for each in file.parent.glob("*.json"))
        hint = did_you_mean(name, known) if known else "; there are none yet"
        raise ConfigError(f"unknown baseline {name!r}{hint}, and --save-baseline {name} saves it")
    return files.load(Baseline, file)


def check(baseline: Baseline, name: str, run: ResolvedRun, rounds: int) -> None:
    """Refuse a comparison that says nothing beside a baseline, before it is measured.

    Raises:
        ConfigError: another machine, another configuration, no backend in common, or too few rounds to tell.
    """
    for key, now in (("cpu", environment.cpu()), ("gpus", environment.gpus())):
        if (then := baseline.environment.get(key)) != now:
            raise ConfigError(
                f"baseline {name!r} is of another machine ({key} {_model(then)} there, {_model(now)} here), "
                "which says nothing about code; save one on this machine"
            )
    threads = run.config["measure"]["threads"] or environment.threads()["torch"]
    if (before := baseline.environment.get("threads", {}).get("torch")) != threads:
        raise ConfigError(
            f"baseline {name!r} ran with {before} threads, and this would with {threads}: use as many"
        )
    if key := difference(baseline.config, run.config):
        raise ConfigError(f"baseline {name!r} is of another configuration ({key} differs); save one of this")
    judged = _judged(baseline.rounds, run.backends)
    if not judged:
        raise ConfigError(
            f"baseline {name!r} has {', '.join(baseline.rounds)}, and none of {', '.join(run.backends)}"
        )
    fewest = min(len(baseline.rounds[backend]) for backend in judged)
    if 1 / math.comb(rounds + fewest, rounds) > LEVEL / len(judged):
        enough = next(n for n in range(2, 100) if 1 / math.comb(2 * n, n) <= LEVEL / len(judged))
        raise ConfigError(
            f"{rounds} rounds beside {fewest} of baseline {name!r} cannot tell a slowdown from chance: "
            f"give --rounds {enough} to both"
        )


def judge(baseline: Baseline, name: str, backends: Sequence[str], rounds: Rounds, limit: float) -> Against:
    """Hold the epochs of a comparison against a baseline that `check` let pass.

    A backend is slower only if all say so: the 95% interval of the ratio of median epochs and a one-sided rank
    test of the medians of rounds, both beyond `limit`, and the spread of rounds, which must be less than the
    slowdown; of seconds, and, where pyg ran on both sides, of seconds over those of pyg in the same round, as a
    machine that is slower today slows pyg too. All backends share the level of the test.

    Args:
        backends: all of the comparison.
        rounds: of those that ran to their end.
    """
    judged = _judged(baseline.rounds, backends)
    changes = [_change(baseline.rounds, rounds, backend, limit, LEVEL / len(judged)) for backend in judged]
    git = baseline.environment.get("git") or {}
    return Against(name=name, revision=str(git.get("revision", ""))[:12], limit=limit, changes=changes)


def share(text: str) -> float:
    """0.05 of `"5%"`.

    Raises:
        ConfigError: it is not a percentage.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)%", text.strip())
    if match is None:
        raise ConfigError(f"--fail-above {text}: must be a percentage such as 5%")
    return float(match[1]) / 100


def _judged(then: Rounds, backends: Sequence[str]) -> list[str]:
    common = [backend for backend in backends if backend in then]
    return [backend for backend in common if backend != YARDSTICK] or common


def _change(then: Rounds, now: Rounds, backend: str, limit: float, level: float) -> Change:
    if not now.get(backend):
        return Change(backend=backend, slowdown=None, regressed=True)
    slowdown = _slower(then[backend], now[backend], limit)
    change = Change(backend=backend, slowdown=slowdown, regressed=slowdown.beyond(limit, level))
    if backend != YARDSTICK and then.get(YARDSTICK) and now.get(YARDSTICK):
        change.beside_pyg = _slower(_over_pyg(then, backend), _over_pyg(now, backend), limit)
        change.regressed &= change.beside_pyg.beyond(limit, level)
    return change


def _slower(then: Sequence[Sequence[float]], now: Sequence[Sequence[float]], limit: float) -> Slowdown:
    """Now over then."""
    from scipy.stats import mannwhitneyu

    ratio, low, high = stats.ratio_interval(now, then, paired=False)
    late, early = ([median(samples) for samples in rounds] for rounds in (now, then))
    tolerated = [seconds / (1 + limit) for seconds in late]
    p = float(mannwhitneyu(tolerated, early, alternative="greater", method="exact").pvalue)
    spread = max(DEVIATIONS * stats.mad(side) / median(side) for side in (late, early))
    return Slowdown(ratio=ratio, low=low, high=high, p=p, spread=spread)


def _over_pyg(rounds: Rounds, backend: str) -> list[list[float]]:
    """Epochs over the median epoch of pyg in the same round."""
    return [
        [seconds / median(pyg) for seconds in samples]
        for samples, pyg in zip(rounds[backend], rounds[YARDSTICK], strict=False)
    ]


def _model(fact: Any) -> str:
    parts = [fact] if isinstance(fact, dict) else fact or []
    return ", ".join(str(part.get("model")) for part in parts) or "none"
