"""Sweeps as a table, as pictures and on a page: configurations with quality over seeds, time and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gnnbench import sweeps, units
from gnnbench.kinds import ResultKind, run
from gnnbench.report.page import Grid, Section, section_of, yaml_of
from gnnbench.report.plots import Bars, Line, Panel, Picture, Series
from gnnbench.report.tables import NOTHING, Cell, Cells, Table, ended, time_cell
from gnnbench.results import files
from gnnbench.stats import Interval
from gnnbench.sweeps import Point

if TYPE_CHECKING:
    from gnnbench.sweeps import Planned

CAPTION = "All else as in the best configuration of each dataset."
Lines = Mapping[str, Mapping[str, Interval]]


class Sweep(ResultKind, sweeps.Sweep):
    """A sweep; a line of its frame is a trial."""

    mark = "axes"
    file = files.SWEEP

    def records(self) -> list[dict[str, Any]]:
        """Every trial in numbers, with the values of its axes."""
        found = []
        for cell in self.cells:
            end = cell.outcome
            outcome = end.model_dump(include={"status", "reason"}) if end else {"status": "pending"}
            of_trial = {"seed": cell.definition["seed"], **outcome, "graph": cell.dataset}
            figures = cell.model_dump(exclude={"key", "definition", "outcome", "warnings", "dataset"})
            found.append({**cell.definition["values"], **of_trial, **figures})
        return found


def table(sweep: sweeps.Sweep, *, named: bool = True) -> Table:
    """One row per configuration, the best ones `named` so."""
    metric = "/".join(dict.fromkeys(point.metric for point in sweep.points if point.metric)) or "metric"
    rows = [
        {
            "configuration": Cell(point.name, f"best of {point.dataset}" if point.best and named else ""),
            f"validation\n{metric}": _quality(point.val, point.val_std, point.seeds),
            f"test\n{metric}": _quality(point.test, point.test_std, point.seeds),
            **({"epoch": time_cell(point.epoch_s)} if sweep.timed else {}),
            "peak\nmemory": units.size(point.peak_memory_bytes) if point.peak_memory_bytes else NOTHING,
            "seeds": Cell(
                f"{point.seeds} of {sweep.repeats}",
                "" if point.status in ("ok", "pending") else ended(point.status),
            ),
        }
        for point in sweep.points
    ]
    doubtful = (f"Warning: {text}" for text in doubts(sweep))
    return Table.of(rows, title=title(sweep), notes=[*verdicts(sweep), *conditions(sweep), *doubtful])


def title(sweep: sweeps.Sweep) -> str:
    """Model, axes and size."""
    model = sweep.config["model"]["name"]
    size = f"{units.counted(len(sweep.points), 'configuration')}, {units.counted(sweep.repeats, 'seed')} each"
    return f"{model} over {', '.join(map(short, sweep.axes))}: {size}"


def verdicts(sweep: sweeps.Sweep) -> Iterator[str]:
    """The best configuration of every dataset, in a sentence each."""
    for point in sweep.points:
        if point.best and point.val is not None:
            found = f"Best on {point.dataset}: {point.name}; validation {point.metric}"
            found += f" {point.val:.4f} ± {point.val_std:.4f}"
            if point.test is not None:
                found += f", test {point.test:.4f} ± {point.test_std:.4f}"
            yield f"{found} over {units.counted(point.seeds, 'seed')}."


def conditions(sweep: sweeps.Sweep) -> Iterator[str]:
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


def doubts(sweep: sweeps.Sweep) -> Iterator[str]:
    """Say what makes the figures doubtful."""
    yield from sweep.warnings
    if sweep.timed and (doubtful := sum(bool(cell.warnings) for cell in sweep.cells)):
        yield (
            f"{units.counted(doubtful, 'trial')} of {len(sweep.cells)} warned, such as of a noisy machine: see "
            "`warnings` of the cells in the JSON"
        )


def progress(sweep: sweeps.Sweep, trial: str) -> tuple[str, Table]:
    """The configurations as far as they are known, and the trial that runs now."""
    return f"{title(sweep)}\n{trial}", table(sweep)


def plan(name: str, trials: Sequence[Planned], start_s: float) -> Table:
    """List what a sweep would run, what is finished, and how long the rest may take after a start of `start_s`."""
    rows: list[Cells] = []
    for each in trials:
        left = "unknown" if each.estimate_s is None else units.seconds(each.estimate_s)
        state, estimate = (ended(each.outcome.status), "") if each.outcome else ("to run", left)
        seed = str(each.trial.seed)
        rows.append({"configuration": each.trial.name, "seed": seed, "state": state, "estimate": estimate})
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
    return Table.of(rows, title=f"{name}: {units.counted(len(trials), 'trial')}", notes=notes, prose=(0, 2))


def short(key: str) -> str:
    """An axis in a word: `"hidden"` for `"model.hidden"`."""
    return key.rpartition(".")[2]


def _quality(mean: float | None, deviation: float | None, seeds: int) -> Cell:
    if mean is None:
        return NOTHING
    return Cell(f"{mean:.4f}", f"± {deviation:.4f}" if seeds > 1 and deviation is not None else "")


def section(record: sweeps.Sweep) -> Section:
    """Tell which configuration is best by validation, and how it does on the test set."""
    best = [place for place, point in enumerate(record.points) if point.best]
    shown = table(record, named=False)
    grid = {"run": "run.yaml", "grid": record.axes, "repeats": record.repeats}
    return section_of(
        record,
        [shown],
        ["sweep", "grid.yaml"],
        question="Which configuration is best by validation, and how does it do on the test set?",
        verdict=[*verdicts(record)] or ["No configuration has a validation metric, so that none is the best."],
        grids=[Grid(replace(shown, notes=()), marked=best, mark="best")],
        advice=[*doubts(record)],
        conditions=[*conditions(record)],
        pictures=[
            Picture(f"{panel.y_label.partition(',')[0].capitalize()} over {short(axis)}", CAPTION, panel)
            for axis, panels in pictures(record).items()
            for panel in panels
        ],
        remark="`grid.yaml` lies beside `run.yaml` and holds",
        file=yaml_of(grid),
    )


def pictures(sweep: sweeps.Sweep) -> dict[str, list[Panel | Bars]]:
    """By the axis; only those that there are figures for, at two values at least."""
    drawn = {axis: [*_panels(sweep, axis)] for axis in sweep.axes if axis != "dataset"}
    return {name: panels for name, panels in drawn.items() if panels}


def _panels(sweep: sweeps.Sweep, axis: str) -> Iterator[Panel | Bars]:
    best = {point.dataset: point.values for point in sweep.points if point.best}
    metric = "/".join(dict.fromkeys(point.metric for point in sweep.points if point.metric))
    if quality := _lines(sweep, axis, best, _metric):
        tested = any(point.test is not None for point in sweep.points)
        yield _drawn(sweep, axis, quality, f"test {metric}" if tested else f"validation {metric}")
    if "backend" in sweep.axes and axis != "backend":
        each = [(name, values, backend) for name, values in best.items() for backend in sweep.axes["backend"]]
        best = {f"{name}, {backend}": {**values, "backend": backend} for name, values, backend in each}
    unit, scale = units.scale(max((point.epoch_s.median for point in sweep.points if point.epoch_s), default=1.0))

    def seconds(point: Point) -> Interval | None:
        time = point.epoch_s
        return Interval(time.median / scale, time.low / scale, time.high / scale) if time else None

    if times := _lines(sweep, axis, best, seconds):
        yield _drawn(sweep, axis, times, f"epoch, {unit}")


def _metric(point: Point) -> Interval | None:
    """The metric of the test set, or of validation, and how far seeds are from it."""
    value, std = (point.val, point.val_std) if point.test is None else (point.test, point.test_std)
    return None if value is None else Interval(value, value - (std or 0.0), value + (std or 0.0))


def _lines(
    sweep: sweeps.Sweep, axis: str, through: Mapping[str, dict[str, Any]], read: Callable[[Point], Interval | None]
) -> Lines:
    """By name and value of the axis, what is `read` of the configurations that otherwise are as `through` says."""
    lines: dict[str, dict[str, Interval]] = {}
    for name, values in through.items():
        alike = (point for point in sweep.points if point.values | {axis: ""} == values | {axis: ""})
        lines[name] = {str(point.values[axis]): figure for point in alike if (figure := read(point))}
    return {name: line for name, line in lines.items() if len(line) > 1}


def _drawn(sweep: sweeps.Sweep, axis: str, lines: Lines, y_label: str) -> Panel | Bars:
    values = sweep.axes[axis]
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        curves = [Line(name, [(float(x), y) for x, y in line.items()]) for name, line in lines.items()]
        return Panel("", short(axis), y_label, curves)
    groups = [str(value) for value in values]
    series = [Series(name, [line.get(group) for group in groups]) for name, line in lines.items()]
    return Bars("", y_label, groups, series, logarithmic=False)
