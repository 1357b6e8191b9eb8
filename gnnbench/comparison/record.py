"""The record of a comparison: rows of a table, worked out from the results of all rounds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Literal

from pydantic import Field

from gnnbench import registry, stats
from gnnbench.comparison.baseline import Against
from gnnbench.comparison.parity import BackendParity, Parity, drifting, drops, parting
from gnnbench.config import backend_sections
from gnnbench.results import schema
from gnnbench.results.schema import Binding, ChoiceRecord, DatasetFacts, Metrics, Ratio, Record, Result, Summary
from gnnbench.stats import grouped

LOADER = "pyg:loader=pyg"  # PyG's convs on batches of PyG's own loader: whole epochs as its examples run them
OWN_DRAWS = "its losses, as its own loader draws other neighbourhoods"
WITH_WORKERS = f"{LOADER}:loader_workers="  # how the names of such rows begin, which are baselines too
BASELINES = ("pyg", "pyg-sparse", LOADER)
FASTEST = "fastest_pyg"  # the faster of these
PEER = "dgl"  # another baseline, where it is a row
NO_SPEEDUP: dict[str, Any] = dict.fromkeys((*BASELINES, FASTEST))
PHASES: tuple[schema.Phase, ...] = ("epoch", "load", "forward", "backward", "optimizer")
SPREAD = 0.10  # between the medians of rounds
FIGURE = re.compile(r"\d[\d.e+-]*")


class Speedup(Ratio):
    """How many times faster than the baseline."""

    baseline: str = Field(description="the backend it is compared with")


class Row(Record):
    """One backend over all rounds; figures are None where it did not finish every round."""

    backend: str
    status: Literal["ok", "oom", "unsupported", "unavailable", "failed", "pending"] = "pending"
    reason: str = Field("", description="one sentence where status is not ok")
    epoch_s: Summary | None = None
    load_s: Summary | None = Field(None, description="waiting for batches; None on a full batch")
    forward_s: Summary | None = None
    backward_s: Summary | None = None
    optimizer_s: Summary | None = None
    parts_s: dict[str, Summary] = Field({}, description="of links: what load and forward consist of")
    round_epoch_s: list[float] = Field([], description="median epoch of each round")
    speedup: dict[str, Speedup | None] = Field(NO_SPEEDUP, description="by baseline; None if not both are green")
    peak_memory_bytes: int | None = Field(None, description="highest over rounds")
    memory_increase_bytes: int | None = Field(None, description="highest over rounds")
    energy_j: float | None = Field(None, description="joules of an epoch, median over rounds; on request")
    memory_ratio: float | None = Field(None, description="peak memory over that of pyg; below 1 is less")
    prepare_s: float | None = Field(None, description="median over rounds")
    break_even_epochs: int | None = Field(
        None, description="epochs after which preparation is paid back against pyg; None: never, or not known"
    )
    metrics: Metrics | None = Field(None, description="quality at the end of the last round")
    bindings: list[Binding] = Field([], description="which conv ran on which kernels")
    choices: list[ChoiceRecord] = Field([], description="tuned choices in force in the last round")
    tuning_s: float | None = Field(None, description="what finding them had cost, before the comparison")


class Comparison(Record):
    """Everything a comparison found; the raw samples are in the results of its rounds."""

    schema_version: int = schema.SCHEMA_VERSION
    status: Literal["running", "ok", "interrupted"] = "running"
    dataset: str = Field("", description="the dataset's label, with what is synthetic")
    dataset_facts: DatasetFacts | None = None
    config: dict[str, Any] = Field(description="the resolved configuration that all backends ran")
    environment: dict[str, Any] = Field({}, description="of the latest round")
    rounds: int
    epochs: int
    parity: Parity = Parity()
    rows: list[Row]
    warnings: list[str] = Field([], description="doubts about the figures, with evidence and remedy")
    against: Against | None = Field(None, description="the baseline that it was held against")

    @property
    def exit_code(self) -> int:
        """3 where parity is red, 1 where nothing ran or it was stopped, 4 of a regression, otherwise 0."""
        if self.parity.ok is False:
            return 3
        if self.status != "ok" or not any(row.status == "ok" for row in self.rows):
            return 1
        return 4 if self.against and self.against.regressed else 0

    def update(self, rounds: Mapping[str, Sequence[Result]], changed: Collection[str] = ()) -> None:
        """Work out rows and warnings from the results so far.

        Args:
            rounds: by backend, in the order of rounds.
            changed: backends with new results or a new verdict; the rows of others keep their figures.
        """
        done = [result for results_ in rounds.values() for result in results_ if result.status == "ok"]
        if done:
            self.dataset, self.environment = done[-1].dataset, done[-1].environment
            self.dataset_facts = done[-1].dataset_facts
        self.rows = [
            _row(row.backend, rounds.get(row.backend, []), self.parity.backends.get(row.backend), self.rounds)
            if row.backend in changed
            else row
            for row in self.rows
        ]
        measured = {row.backend: row for row in self.rows if row.epoch_s is not None}
        self._compare_losses(rounds)
        self.parity.conclude([row.backend for row in self.rows])
        parted = dict(_parted({name: rounds[name] for name in measured}))
        green = {name for name, verdict in self.parity.backends.items() if verdict.green}
        green &= measured.keys() - parted.keys()
        of_pyg = [*BASELINES, *(name for name in measured if name.startswith(WITH_WORKERS))]
        baselines = [*of_pyg, *[PEER] * (PEER in measured)]
        fastest = min(green.intersection(of_pyg), key=lambda name: _seconds(measured[name]), default=None)
        for name, row in measured.items():
            for baseline in baselines:
                if not {name, baseline} <= green:
                    row.speedup[baseline] = None
                elif row.speedup.get(baseline) is None or {name, baseline}.intersection(changed):
                    row.speedup[baseline] = speedup(
                        baseline, name, {each: schema.times(rounds[each]) for each in (baseline, name)}
                    )
            row.speedup[FASTEST] = row.speedup[fastest] if fastest else None
            if "pyg" in measured:
                _relate(row, measured["pyg"])
        self.warnings = [*_warnings(rounds), *(f"{name}: {why}" for name, why in parted.items())]

    def _compare_losses(self, rounds: Mapping[str, Sequence[Result]]) -> None:
        """Hold the losses of every backend against the reference's, where nothing is drawn at random."""
        reference = self.parity.reference
        if reference is None or not rounds.get(reference) or drops(self.config["model"]):
            return
        expected = rounds[reference][0].losses
        batches = registry.find("training.batching", self.config["batch"]["kind"]).Config
        for name, verdict in self.parity.backends.items():
            if batches.draws_neighbors and backend_sections(name)[0].get("loader", "ours") != "ours":
                verdict.unchecked = [*dict.fromkeys([*verdict.unchecked, OWN_DRAWS])]
                continue
            reasons = (
                drifting(result.losses, expected, reference, verdict.tolerance, self.parity.rounded)
                for result in rounds.get(name, ())
                if result.samples
            )
            verdict.losses = next(filter(None, reasons), "") if expected and name != reference else ""


def _row(backend: str, rounds: Sequence[Result], parity: BackendParity | None, wanted: int) -> Row:
    ends: list[tuple[Any, str]] = [(parity.status, parity.reason)] if parity else []
    for number, result in enumerate(rounds, start=1):
        ends.append((result.status, result.reason + f" (round {number})" * (number > 1)))
    for status, reason in ends:
        if status != "ok":
            return Row(backend=backend, status="failed" if status == "interrupted" else status, reason=reason)
    if not rounds:
        return Row(backend=backend)
    last, joules = rounds[-1], [each.energy_j for each in rounds if each.energy_j is not None]
    return Row(
        backend=backend,
        status="ok" if len(rounds) >= wanted else "pending",
        **{f"{phase}_s": schema.summary(schema.times(rounds, phase)) for phase in PHASES},
        parts_s={phase: found for phase in schema.OUTER if (found := schema.summary(schema.times(rounds, phase)))},
        round_epoch_s=[median(samples) for samples in schema.times(rounds)],
        peak_memory_bytes=_highest([result.peak_memory_bytes for result in rounds]),
        memory_increase_bytes=_highest([result.memory_increase_bytes for result in rounds]),
        energy_j=median(joules) if joules else None,
        prepare_s=median([result.prepare_s or 0.0 for result in rounds]),
        metrics=last.metrics,
        bindings=last.bindings,
        choices=last.choices,
        tuning_s=last.tuning_s,
    )


def _highest(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _seconds(row: Row) -> float:
    return row.epoch_s.median if row.epoch_s else math.inf


def speedup(baseline: str, name: str, rounds: Mapping[str, Sequence[Sequence[float]]]) -> Speedup:
    """How many times faster `name` is; seconds are by backend and round."""
    if baseline == name:
        return Speedup(baseline=baseline, ratio=1.0, low=1.0, high=1.0)
    ratio = stats.ratio_interval(rounds[baseline], rounds[name])
    return Speedup(baseline=baseline, ratio=ratio.value, low=ratio.low, high=ratio.high)


def _relate(row: Row, pyg: Row) -> None:
    """Set what is measured against pyg and needs no parity: memory. And break-even, where parity is green."""
    if row.peak_memory_bytes and pyg.peak_memory_bytes:
        row.memory_ratio = row.peak_memory_bytes / pyg.peak_memory_bytes
    gain, row.break_even_epochs = _seconds(pyg) - _seconds(row), None
    if row.speedup["pyg"] is not None and gain > 0:
        row.break_even_epochs = math.ceil(max((row.prepare_s or 0.0) - (pyg.prepare_s or 0.0), 0.0) / gain)


def _warnings(rounds: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """Doubts of single runs, one for all that differ in figures only, then doubts between rounds."""
    told = ((name, text) for name, results in rounds.items() for result in results for text in result.warnings)
    for warnings in grouped(told, lambda warning: FIGURE.sub("", warning[1])).values():
        others = f" (and {len(warnings) - 1} more runs)" * (len(warnings) > 1)
        yield f"{', '.join(dict.fromkeys(backend for backend, _ in warnings))}: {warnings[0][1]}{others}"
    for backend, of_backend in rounds.items():
        done = [result for result in of_backend if result.status == "ok"]
        if len(done) > 1:
            yield from _between_rounds(backend, done)
    if differs([result.environment for of_backend in rounds.values() for result in of_backend]):
        yield "rounds ran on different software or hardware: compare again with --force"


def _between_rounds(backend: str, rounds: Sequence[Result]) -> Iterator[str]:
    medians = [median(samples) for samples in schema.times(rounds)]
    spread = max(medians) / min(medians) - 1
    if spread > SPREAD:
        yield (
            f"{backend}: rounds differ by {spread:.0%} (median epoch {min(medians):.3g} to {max(medians):.3g} s); "
            "the machine is noisy: close other programs, or give more --rounds"
        )
    if any(result.choices != rounds[0].choices for result in rounds):
        yield f"{backend}: rounds ran with different tuned choices: compare again with --force"
    losses = [result.losses for result in rounds]
    for number, later in enumerate(losses[1:], start=2):
        epoch = next((i for i, pair in enumerate(zip(losses[0], later, strict=False)) if pair[0] != pair[1]), None)
        if epoch is not None:
            yield (
                f"{backend}: rounds 1 and {number} had the same seed, but their losses part in epoch {epoch + 1} "
                f"({losses[0][epoch]:.8g} and {later[epoch]:.8g}); its kernels depend on the order of threads"
            )
            return


def _parted(rounds: Mapping[str, Sequence[Result]]) -> Iterator[tuple[str, str]]:
    """Backends whose recorded steps do not learn what their eager ones learn, and where that shows."""
    for name in rounds:
        eager = ":".join(option for option in name.split(":") if option != "cuda_graph=true")
        if name != eager in rounds and (reason := parting(rounds[name][0].losses, rounds[eager][0].losses)):
            yield name, f"{reason}; no speedup is given"


def differs(environments: Sequence[dict[str, Any]]) -> bool:
    """Return whether processors or libraries changed between rounds, as in a continued comparison.

    Rounds of other code are never kept, so that another revision is no difference: its change may be to a page.
    """
    kept = ("cpu", "gpus", "packages")
    known = (environment for environment in environments if environment)
    return len({json.dumps([each.get(key) for key in kept]) for each in known}) > 1
