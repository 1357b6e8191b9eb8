"""Records of a sweep: trials, what each configuration comes to over its seeds, and the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from gnnbench.cells import CellRecord
from gnnbench.results import schema
from gnnbench.results.schema import Record, Result, Status, Summary


class TrialRecord(CellRecord):
    """A configuration with one seed; figures are None until it has ended well."""

    dataset: str = Field("", description="the dataset's label, with what is synthetic")
    metric: str = Field("", description="as in a run, such as accuracy; higher is better")
    val: float | None = Field(None, description="at the best validation epoch")
    test: float | None = Field(None, description="at the same epoch")
    epoch_s: Summary | None = Field(None, description="None too where trials ran side by side")
    prepare_s: float | None = None
    peak_memory_bytes: int | None = None
    warnings: list[str] = Field([])

    def take(self, result: Result, timed: bool) -> None:
        """Take the figures of a run that ended well."""
        self.dataset, self.warnings = result.dataset, result.warnings
        self.peak_memory_bytes = result.peak_memory_bytes
        if result.metrics:
            self.metric, self.val, self.test = result.metrics.name, result.metrics.val, result.metrics.test
        if timed:
            self.epoch_s, self.prepare_s = result.epoch_s, result.prepare_s


class Point(Record):
    """A configuration over its seeds: means and sample standard deviations of those that ended well."""

    name: str = Field(description="in words")
    values: dict[str, Any] = Field(description="of the axes, by key")
    status: Status | Literal["pending"] = Field("pending", description="of the first seed that did not end well")
    reason: str = Field("", description="one sentence where a seed did not end well")
    dataset: str = ""
    metric: str = ""
    seeds: int = Field(0, description="that ended well")
    val: float | None = None
    val_std: float | None = Field(None, description="zero of one seed")
    test: float | None = None
    test_std: float | None = Field(None, description="zero of one seed")
    epoch_s: Summary | None = Field(None, description="over all epochs of all seeds")
    peak_memory_bytes: int | None = Field(None, description="highest over seeds")
    best: bool = Field(False, description="has the highest mean validation metric of its dataset")


class Sweep(Record):
    """A sweep; the raw samples are in the folders of its cells."""

    schema_version: Literal[1] = 1
    status: Literal["running", "ok", "interrupted", "incomplete"] = Field(
        "running", description="incomplete: the cluster lost cells, which the same command runs again"
    )
    name: str
    config: dict[str, Any] = Field(description="the run that the axes vary, resolved")
    axes: dict[str, list[Any]] = Field(description="values by key")
    repeats: int = Field(description="seeds of every configuration")
    timed: bool = Field(description="whether every trial had the machine to itself; no times are given otherwise")
    environment: dict[str, Any] = Field({}, description="of the first trial that ended well")
    cells: list[TrialRecord] = Field(description="all configurations with the first seed, then with the next")
    points: list[Point]
    warnings: list[str] = Field([])

    @property
    def exit_code(self) -> int:
        """1 where no trial ended well or some were lost, otherwise 0."""
        return 0 if self.status == "ok" and any(point.seeds for point in self.points) else 1

    def refresh(self, place: int, rounds: Sequence[Sequence[float]]) -> None:
        """Work out configuration `place` anew from its trials.

        Args:
            rounds: seconds of their epochs, one sequence per trial that was timed.
        """
        ended = [(cell, cell.outcome) for cell in self.cells[place :: len(self.points)] if cell.outcome]
        done = [cell for cell, outcome in ended if outcome.status == "ok"]
        failed = [outcome for _, outcome in ended if outcome.status != "ok"]
        name, values = self.points[place].name, self.points[place].values
        point = Point(name=name, values=values, status="ok" if ended else "pending", seeds=len(done))
        if failed:
            point.status, point.reason = failed[0].status, failed[0].reason
        if done:
            point.dataset, point.metric = done[0].dataset, done[0].metric
            point.val, point.val_std = schema.spread(cell.val for cell in done)
            point.test, point.test_std = schema.spread(cell.test for cell in done)
            point.peak_memory_bytes = max((cell.peak_memory_bytes or 0 for cell in done), default=0) or None
            point.epoch_s = schema.summary(rounds)
        self.points[place] = point
        self._choose()

    def _choose(self) -> None:
        """Mark the best configuration of every dataset, among those with the most seeds."""
        for dataset in {point.dataset for point in self.points if point.seeds}:
            of_dataset = [point for point in self.points if point.seeds and point.dataset == dataset]
            most = max(point.seeds for point in of_dataset)
            eligible = [point for point in of_dataset if point.seeds == most and point.val is not None]
            best = max(eligible, key=lambda point: point.val or 0.0, default=None)
            for point in of_dataset:
                point.best = point is best
