"""A sweep as a table, as pictures and on a page: configurations with quality over seeds, time and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnbench import units
from gnnbench.report import run
from gnnbench.report.page import Grid, Section, section_of, yaml_of
from gnnbench.report.plots import Bars, Line, Panel, Series, of_panel
from gnnbench.report.tables import NOTHING, Cell, Table, ended, time_cell

if TYPE_CHECKING:
    from gnnbench.sweeps import Planned as PlannedTrial
    from gnnbench.sweeps import Point, Progress, Sweep

CAPTION = "All else as in the best configuration of each dataset."
Slice = Mapping[Any, "Point"]


def table(sweep: Sweep, *, named: bool = True) -> Table:
    """One row per configuration, the best ones `named` so."""
    metrics = dict.fromkeys(point.metric for point in sweep.points if point.metric)
    metric = "/".join(metrics) or "metric"
    heading = ["configuration", f"validation\n{metric}", f"test\n{metric}", "epoch", "peak\nmemory", "seeds"]
    rows = [
        [
            Cell(point.name, f"best of {point.dataset}" if point.best and named else ""),
            _quality(point.val, point.val_std, point.seeds),
            _quality(point.test, point.test_std, point.seeds),
            time_cell(point.epoch_s),
            Cell(units.size(point.peak_memory_bytes)) if point.peak_memory_bytes else NOTHING,
            _seeds(point, sweep.repeats),
        ]
        for point in sweep.points
    ]
    kept = [place for place in range(len(heading)) if place != 3 or sweep.timed]
    return Table(
        [heading[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
        title=title(sweep),
        notes=[*verdicts(sweep), *conditions(sweep), *(f"Warning: {text}" for text in doubts(sweep))],
    )


def title(sweep: Sweep) -> str:
    """Model, axes and size."""
    model = sweep.config["model"]["name"]
    size = f"{units.counted(len(sweep.points), 'configuration')}, {units.counted(sweep.repeats, 'seed')} each"
    return f"{model} over {', '.join(map(short, sweep.axes))}: {size}"


def verdicts(sweep: Sweep) -> Iterator[str]:
    """The best configuration of every dataset, in a sentence each."""
    for point in sweep.points:
        if point.best and point.val is not None:
            found = f"Best on {point.dataset}: {point.name}; validation {point.metric}"
            found += f" {point.val:.4f} ± {point.val_std:.4f}"
            if point.test is not None:
                found += f", test {point.test:.4f} ± {point.test_std:.4f}"
            yield f"{found} over {units.counted(point.seeds, 'seed')}."


def conditions(sweep: Sweep) -> Iterator[str]:
    """How it was measured, and what did not end well."""
    yield (
        "Quality is that of each seed at its best validation epoch; ± is the standard deviation over seeds. "
        "Best is the highest mean validation metric; the test metric has no part in the choice"
    )
    if sweep.timed:
        yield (
            "Every trial ran alone, in a fresh process; times are medians over the epochs of all seeds without "
            "warm-up, ranges 95% bootstrap intervals. What backends compute is checked by `gnnbench compare`, "
            "not here"
        )
    else:
        yield "Trials ran side by side, so that no times are given"
    for point in sweep.points:
        if point.reason:
            yield f"{point.name}: {ended(point.status)}: {point.reason}"
    yield from run.machine(sweep.environment)


def doubts(sweep: Sweep) -> Iterator[str]:
    """Say what makes the figures doubtful."""
    yield from sweep.warnings
    if sweep.timed and (doubtful := sum(bool(cell.warnings) for cell in sweep.cells)):
        yield (
            f"{units.counted(doubtful, 'trial')} of {len(sweep.cells)} warned, such as of a noisy machine: see "
            "`warnings` of the cells in the JSON"
        )


def records(sweep: Sweep) -> list[dict[str, Any]]:
    """Every trial in numbers, with the values of its axes."""
    found = []
    for cell in sweep.cells:
        outcome = cell.outcome.model_dump(include={"status", "reason"}) if cell.outcome else {"status": "pending"}
        figures = cell.model_dump(exclude={"key", "definition", "outcome", "warnings", "dataset"})
        of_trial = {"seed": cell.definition["seed"], **outcome, "graph": cell.dataset}
        found.append({**cell.definition["values"], **of_trial, **figures})
    return found


def progress(event: Progress) -> tuple[str, Table]:
    """The configurations as far as they are known, and the trial that runs now."""
    return f"{title(event.sweep)}\n{event.trial} ({event.done} of {event.total} done)", table(event.sweep)


def plan(name: str, trials: Sequence[PlannedTrial], start_s: float) -> Table:
    """List what a sweep would run, what is finished, and how long the rest may take after a start of `start_s`."""
    rows = [
        [
            Cell(each.trial.name),
            Cell(str(each.trial.seed)),
            Cell(ended(each.outcome.status) if each.outcome else "to run"),
            Cell("" if each.outcome else "unknown" if each.estimate_s is None else units.seconds(each.estimate_s)),
        ]
        for each in trials
    ]
    todo = [each.estimate_s for each in trials if not each.outcome]
    known = [seconds for seconds in todo if seconds is not None]
    total = f"about {units.seconds(start_s + sum(known))}" if known else "an unknown time"
    without = f" without {units.counted(len(todo) - len(known), 'trial')} of unknown length" if known else ""
    notes = [f"{len(trials) - len(todo)} of {units.counted(len(trials), 'trial')} finished"]
    if todo:
        notes[0] += f"; the others take {total}" + without * (len(known) < len(todo))
        notes.append(
            "Estimates are medians of finished trials of the same configuration, or else of the same graph, "
            "model and backend, or the epochs of the latest such result on this machine, without its preparation "
            "and evaluation" + "; start the sweep, stop it with Ctrl-C after a trial, and ask again" * (not known)
        )
    heading = ("configuration", "seed", "state", "estimate")
    return Table(heading, rows, title=f"{name}: {units.counted(len(trials), 'trial')}", notes=notes, prose=(0, 2))


def short(key: str) -> str:
    """An axis in a word: `"hidden"` for `"model.hidden"`."""
    return key.rpartition(".")[2]


def _quality(mean: float | None, deviation: float | None, seeds: int) -> Cell:
    if mean is None:
        return NOTHING
    return Cell(f"{mean:.4f}", f"± {deviation:.4f}" if seeds > 1 and deviation is not None else "")


def _seeds(point: Point, repeats: int) -> Cell:
    failed = "" if point.status in ("ok", "pending") else ended(point.status)
    return Cell(f"{point.seeds} of {repeats}", failed)


class Value(NamedTuple):
    """A figure with the ends of its interval."""

    median: float
    low: float
    high: float


def section(record: Sweep) -> Section:
    """Tell which configuration is best by validation, and how it does on the test set."""
    best = [place for place, point in enumerate(record.points) if point.best]
    shown = table(record, named=False)
    grid = {"run": "run.yaml", "grid": record.axes, "repeats": record.repeats}
    return section_of(
        record,
        [shown],
        ["sweep", "grid.yaml"],
        kind="Sweep",
        question="Which configuration is best by validation, and how does it do on the test set?",
        verdict=[*verdicts(record)] or ["No configuration has a validation metric, so that none is the best."],
        grids=[Grid(replace(shown, notes=()), marked=best, mark="best")],
        advice=[*doubts(record)],
        conditions=[*conditions(record)],
        pictures=[
            of_panel(panel, f"{panel.y_label.partition(',')[0].capitalize()} over {short(axis)}", CAPTION)
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
    quality = _lines(through, _metric)
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


def _metric(point: Point) -> Value | None:
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
        return Panel("", short(axis), y_label, curves)
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
