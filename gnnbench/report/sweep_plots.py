"""A sweep as pictures and on a page: along every axis, through the best configuration of every dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnbench import units
from gnnbench.report import sweep as tables
from gnnbench.report.page.pictures import of_panel
from gnnbench.report.page.section import Grid, Section, section_of, yaml_of
from gnnbench.report.plots import Bars, Line, Panel, Series

if TYPE_CHECKING:
    from gnnbench.sweeps import Point, Sweep

CAPTION = "All else as in the best configuration of each dataset."
Slice = Mapping[Any, "Point"]


class Value(NamedTuple):
    """A figure with the ends of its interval."""

    median: float
    low: float
    high: float


def section(record: Sweep) -> Section:
    """Tell which configuration is best by validation, and how it does on the test set."""
    best = [place for place, point in enumerate(record.points) if point.best]
    table = tables.table(record, named=False)
    grid = {"run": "run.yaml", "grid": record.axes, "repeats": record.repeats}
    return section_of(
        record,
        [table],
        ["sweep", "grid.yaml"],
        kind="Sweep",
        question="Which configuration is best by validation, and how does it do on the test set?",
        verdict=[*tables.verdicts(record)]
        or ["No configuration has a validation metric, so that none is the best."],
        grids=[Grid(replace(table, notes=()), marked=best, mark="best")],
        advice=[*tables.doubts(record)],
        conditions=[*tables.conditions(record)],
        pictures=[
            of_panel(panel, f"{panel.y_label.partition(',')[0].capitalize()} over {tables.short(axis)}", CAPTION)
            for axis, panels in pictures(record).items()
            for panel in panels
        ],
        remark="`grid.yaml` lies beside `run.yaml` and holds",
        file=yaml_of(grid),
    )


def pictures(sweep: Sweep) -> dict[str, list[Panel | Bars]]:
    """By the axis; only those that there are figures for, at two values at least."""
    drawn = {axis: [*_panels(sweep, axis)] for axis in sweep.axes if axis != "dataset"}
    return {name: panels for name, panels in drawn.items() if panels}


def _panels(sweep: Sweep, axis: str) -> Iterator[Panel | Bars]:
    through = {point.dataset: _slice(sweep, axis, point) for point in sweep.points if point.best}
    metric = "/".join(dict.fromkeys(point.metric for point in sweep.points if point.metric))
    quality = _lines(through, _quality)
    if quality:
        tested = any(point.test is not None for point in sweep.points)
        yield _drawn(sweep, axis, quality, f"test {metric}" if tested else f"validation {metric}")
    if "backend" in sweep.axes and axis != "backend":
        through = {
            f"{point.dataset}, {backend}": _slice(sweep, axis, point, backend=backend)
            for point in sweep.points
            if point.best
            for backend in sweep.axes["backend"]
        }
    seconds = _lines(through, _seconds)
    if seconds:
        unit, scale = units.scale(max(value.median for line in seconds.values() for value in line.values()))
        scaled = {
            name: {x: Value(*(each / scale for each in value)) for x, value in line.items()}
            for name, line in seconds.items()
        }
        yield _drawn(sweep, axis, scaled, f"epoch, {unit}")


def _quality(point: Point) -> Value | None:
    """The metric of the test set, or of validation, and how far seeds are from it."""
    value, std = (point.val, point.val_std) if point.test is None else (point.test, point.test_std)
    return None if value is None else Value(value, value - (std or 0.0), value + (std or 0.0))


def _seconds(point: Point) -> Value | None:
    time = point.epoch_s
    return Value(time.median, time.low, time.high) if time else None


def _slice(sweep: Sweep, axis: str, best: Point, **others: Any) -> Slice:
    """By value of the axis, the configurations that otherwise are the best one, but for what `others` give."""
    wanted = {key: others.get(key, value) for key, value in best.values.items() if key != axis}
    return {
        str(point.values[axis]): point
        for point in sweep.points
        if {key: value for key, value in point.values.items() if key != axis} == wanted
    }


def _lines(through: Mapping[str, Slice], read: Callable[[Point], Value | None]) -> dict[str, dict[str, Value]]:
    lines = {
        name: {x: value for x, point in points.items() if (value := read(point)) is not None}
        for name, points in through.items()
    }
    return {name: line for name, line in lines.items() if len(line) > 1}


def _drawn(sweep: Sweep, axis: str, lines: Mapping[str, Mapping[str, Value]], y_label: str) -> Panel | Bars:
    values = sweep.axes[axis]
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        curves = [
            Line(
                name,
                [(float(x), y.median) for x, y in line.items()],
                ends={float(x): (y.low, y.high) for x, y in line.items() if y.low < y.high},
            )
            for name, line in lines.items()
        ]
        return Panel("", tables.short(axis), y_label, curves)
    groups = [str(value) for value in values]
    series = [
        Series(
            name,
            [line[x].median if x in line else None for x in groups],
            [(line[x].low, line[x].high) if x in line and line[x].low < line[x].high else None for x in groups],
        )
        for name, line in lines.items()
    ]
    return Bars("", y_label, groups, series, logarithmic=False)
