"""Figures as cells: medians and ratios above their intervals, and the status of what has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnnbench import units
from gnnbench.report.tables import Cell

if TYPE_CHECKING:
    from gnnbench.benchmarks.records import Time
    from gnnbench.results.schema import Ratio, Summary

NOTHING = Cell("–")
STATUS = {"oom": "out of memory", "pending": "not run"}


def ended(status: str) -> str:
    """A status in words."""
    return STATUS.get(status, status)


def seconds(median: Time | Summary | None) -> Cell:
    """A time above its interval."""
    if median is None:
        return NOTHING
    return Cell(units.seconds(median.median), units.interval(units.seconds, median.low, median.high))


def ratio(gain: Ratio | None) -> Cell:
    """How many times faster, above its interval."""
    return Cell(units.ratio(gain.ratio), units.interval(units.ratio, gain.low, gain.high)) if gain else NOTHING


def time(row: Any) -> Cell:
    """The time of a row of a benchmark, or what became of it."""
    return seconds(row.time_s) if row.time_s else Cell(ended(row.status))
