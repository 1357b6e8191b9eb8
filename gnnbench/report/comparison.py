"""A comparison as a table: backends side by side, with parity, reasons, rewrites and conditions below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gnnbench import units
from gnnbench.report import figures
from gnnbench.report.figures import NOTHING, ended
from gnnbench.report.run import graph, kernels, machine, title
from gnnbench.report.tables import Cell, Table
from gnnbench.report.tune import used

if TYPE_CHECKING:
    from gnnbench.comparison import Progress
    from gnnbench.comparison.parity import BackendParity, Parity
    from gnnbench.comparison.record import Comparison, Row, Speedup

FASTEST, LOADER = "fastest_pyg", "pyg:loader=pyg"  # baselines by their keys
NAMES = {FASTEST: "fastest PyG", LOADER: "pyg with\nits loader"}


def table(comparison: Comparison) -> Table:
    """Backends side by side, with parity, reasons, rewrites, conditions and warnings below."""
    metric = next((row.metrics.name for row in comparison.rows if row.metrics), "metric")
    phases = [phase for phase in ("load", "forward", "backward") if phase != "load" or _loads(comparison)]
    baselines = list(_baselines(comparison))
    heading = [
        "backend",
        *phases,
        "epoch",
        *(f"speedup vs\n{NAMES.get(baseline, baseline)}" for baseline in baselines),
        "peak\nmemory",
        "prepare,\npaid in",
    ]
    rows = [_backend_row(row, phases, baselines) for row in comparison.rows]
    size = f"{units.counted(comparison.rounds, 'round')} of {units.counted(comparison.epochs, 'epoch')}"
    return Table(
        [*heading, f"test\n{metric}"],
        rows,
        title=f"{title(comparison.config, comparison.dataset)}: {size}",
        notes=[*_notes(comparison)],
    )


def progress(event: Progress) -> tuple[str, Table]:
    """The table as far as it is known, and the process that runs now."""
    stage = "parity check" if event.stage == "parity" else f"round {event.round} of {event.comparison.rounds}"
    now = table(event.comparison)
    lines = [now.title, *parity(event.comparison.parity), f"{stage}, {event.backend}"]
    return "\n".join(lines) + f" ({event.done + 1} of {event.total})", now


def records(comparison: Comparison) -> list[dict[str, Any]]:
    """Every row of a comparison in numbers, with the names of its JSON."""
    return [{**row.model_dump(exclude_none=True), "dataset": comparison.dataset} for row in comparison.rows]


def held(comparison: Comparison) -> Iterator[str]:
    """Every backend beside the baseline, if the comparison was held against one."""
    if (against := comparison.against) is None:
        return
    of = f"baseline {against.name}" + f" ({against.revision})" * bool(against.revision)
    for change in against.changes:
        if change.slowdown is None:
            yield f"Regression: {change.backend} did not run to its end, as it did in {of}"
            continue
        slowdown = change.slowdown
        ends = [units.interval(units.ratio, slowdown.low, slowdown.high, "95% interval {}") or "no interval"]
        if change.beside_pyg:
            low, high = change.beside_pyg.low, change.beside_pyg.high
            interval = units.interval(units.ratio, low, high, ", {}")
            ends.append(f"over pyg {units.ratio(change.beside_pyg.ratio)}{interval}")
        slower = "slower" if change.regressed else "not slower"
        verdict = f"{slower} by more than {100 * against.limit:.3g}% beyond doubt"
        start = "Regression: " * change.regressed + f"{change.backend}: an epoch takes"
        yield f"{start} {units.ratio(change.slowdown.ratio)} that of {of} ({'; '.join(ends)}): {verdict}"


def _notes(comparison: Comparison) -> Iterator[str]:
    yield from parity(comparison.parity)
    yield from held(comparison)
    for row in comparison.rows:
        if row.reason:
            name = row.backend.partition(":")[0]
            yield f"{row.backend}: {row.reason.removeprefix(f'backend {name!r} is unavailable: ')}"
    yield from parts(comparison)
    for row in comparison.rows:
        yield from kernels(row.bindings, row.backend)
        yield from used(row.choices, row.tuning_s, row.backend)
    yield from graph(comparison.dataset_facts)
    yield from machine(comparison.environment)
    yield from (f"Warning: {text}" for text in comparison.warnings)


def parts(comparison: Comparison) -> Iterator[str]:
    """Tell the medians of what load and forward consist of, where that is told apart."""
    for row in comparison.rows:
        if told := [f"{part} {units.seconds(time.median)}" for part, time in row.parts_s.items()]:
            yield f"{row.backend}, within load and forward: {', '.join(told)}"


def parity(parity: Parity) -> Iterator[str]:
    """Return whether all backends compute the same, and how far they are apart."""
    if parity.ok is None:
        yield f"Parity: not checked{f': {parity.reason}' if parity.reason else ''}; no speedup is given"
        return
    ran = ((name, verdict) for name, verdict in parity.backends.items() if verdict.ok is not None)
    checked = {name: verdict for name, verdict in ran if name != parity.reference}
    differ = {
        name: units.power(verdict.rel_rms) for name, verdict in checked.items() if verdict.rel_rms is not None
    }
    errors = ", ".join(f"{name} {size}" for name, size in differ.items())
    if parity.ok:
        within = f"logits and every gradient within {units.power(parity.tolerance)} of {parity.reference}"
        own = {name: verdict for name, verdict in checked.items() if verdict.tolerance != parity.tolerance}
        tolerances = {name: _tolerance(verdict, parity) for name, verdict in own.items()}
        within += "".join(f"; {names} within {size}" for size, names in _by_value(tolerances))
        yield f"Parity: green, {within}" + (f" (largest relative error: {errors})" if errors else "")
        yield from _scope(parity)
        return
    yield f"Parity: red against {parity.reference}; no speedup is given for a backend whose result differs"
    yield from (f"{name}: {verdict.red}" for name, verdict in checked.items() if verdict.red)
    yield from _scope(parity)


def _tolerance(verdict: BackendParity, parity: Parity) -> str:
    """That of a backend that has its own."""
    times = f" or {verdict.autocasts:g} times what autocast moves {parity.reference}"
    return units.power(verdict.tolerance) + (times if verdict.autocasts else "")


def _by_value(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Every text, once, and the names that have it."""
    for text in dict.fromkeys(texts.values()):
        yield text, ", ".join(name for name, own in texts.items() if own == text)


def _scope(parity: Parity) -> Iterator[str]:
    """Say what the verdict covers, and what it does not."""
    if parity.checked:
        yield f"Checked: {'; '.join(parity.checked)}"
    own = {name: "; ".join(verdict.unchecked) for name, verdict in parity.backends.items() if verdict.unchecked}
    unchecked = [*parity.unchecked, *(f"{names}: {sentences}" for sentences, names in _by_value(own))]
    if unchecked:
        yield f"Not checked: {'; '.join(unchecked)}"


def _loads(comparison: Comparison) -> bool:
    return any(row.load_s for row in comparison.rows)


def _baselines(comparison: Comparison) -> Iterator[str]:
    """The baselines of every row: pyg, PyG's own loader where it is a row, and another that is faster."""
    yield "pyg"
    if any(row.backend == LOADER for row in comparison.rows):
        yield LOADER
    ratios = (row.speedup[FASTEST] for row in comparison.rows)
    fastest = next((ratio.baseline for ratio in ratios if ratio), None)
    if fastest not in ("pyg", LOADER):
        yield FASTEST if fastest is None else fastest


def _backend_row(row: Row, phases: Sequence[str], baselines: Sequence[str]) -> list[Cell]:
    name, _, options = row.backend.partition(":")
    label = Cell(name, options.replace(":", " "))
    if row.epoch_s is None:
        blanks = [NOTHING] * len(phases), [NOTHING] * (len(baselines) + 3)
        return [label, *blanks[0], Cell(ended(row.status)), *blanks[1]]
    summaries = (getattr(row, f"{phase}_s") for phase in phases)
    return [
        label,
        *(Cell(units.seconds(summary.median)) if summary else NOTHING for summary in summaries),
        figures.seconds(row.epoch_s),
        *(_speedup(row.speedup.get(baseline), row.backend) for baseline in baselines),
        _peak(row),
        _preparation(row),
        NOTHING if row.metrics is None or row.metrics.test is None else Cell(f"{row.metrics.test:.4f}"),
    ]


def _speedup(speedup: Speedup | None, backend: str) -> Cell:
    own = speedup is not None and speedup.baseline == backend
    return Cell("1x", "baseline") if own else figures.ratio(speedup)


def _peak(row: Row) -> Cell:
    if row.peak_memory_bytes is None:
        return NOTHING
    of_pyg = "" if row.memory_ratio is None or row.backend == "pyg" else f"{units.ratio(row.memory_ratio)} pyg"
    return Cell(units.size(row.peak_memory_bytes), of_pyg)


def _preparation(row: Row) -> Cell:
    if row.prepare_s is None:
        return NOTHING
    known = row.break_even_epochs is not None and row.backend != "pyg"
    paid = units.counted(row.break_even_epochs or 0, "epoch") if known else ""
    return Cell(units.seconds(row.prepare_s), paid)
