"""Comparisons as tables and pages: backends side by side, with parity, reasons and conditions below."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from gnnbench import comparison, units
from gnnbench.comparison import record as schema
from gnnbench.comparison.record import FASTEST, LOADER, PEER, Row, Speedup
from gnnbench.kinds import ResultKind
from gnnbench.kinds.run import circumstances, kernels, over_repeats, strip, title, used
from gnnbench.report.page import Grid, Section, Tone, section_of
from gnnbench.report.plots import Picture, Strip, Strips, curves, sizes, stacks
from gnnbench.report.tables import NOTHING, Cell, Cells, Table, ended, prepare_cell, ratio_cell, time_cell
from gnnbench.results import files

if TYPE_CHECKING:
    from gnnbench.comparison.parity import Parity, TensorError
    from gnnbench.comparison.turns import Progress
    from gnnbench.inference import Inference
    from gnnbench.inference import Row as Inferred
    from gnnbench.results.schema import Result, Summary

    Rounds = Mapping[str, Sequence[Result]]

R = TypeVar("R", Row, "Inferred")
QUESTION = "Which backend trains this model fastest, and does each compute what PyG computes?"
NAMES = {FASTEST: "fastest PyG", LOADER: "pyg with\nits loader"}


class Comparison(ResultKind, schema.Comparison):
    """A comparison; a line of its frame is a backend."""

    mark = "parity"
    file = files.COMPARISON

    def results(self) -> Rounds:
        """The results of its rounds by backend, where they lie beside its JSON."""
        names = [row.backend for row in self.rows if row.epoch_s and not {"/", "\\"} & {*row.backend}]
        found = {name: comparison.stored(self.path.parent, name)[: self.rounds] for name in names}
        return {name: results for name, results in found.items() if results}

    def records(self) -> list[dict[str, Any]]:
        """Every row in numbers, with the names of the JSON."""
        return [{**row, "dataset": self.dataset} for row in super().records()]


def table(record: schema.Comparison) -> Table:
    """Backends side by side, with parity, reasons, rewrites, conditions and warnings below."""
    return Table.of(
        _rows(record),
        title=f"{title(record.config, record.dataset)}: {_size(record)}",
        notes=[*parity(record.parity), *held(record), *reasons(record), *_conditions(record)],
    )


def section(record: Comparison) -> Section:
    """Tell which backend is fastest."""
    winner, first = (fastest(record.rows, attrgetter("epoch_s"), besides) for besides in ("pyg", ""))
    tone, verdict = _verdict(record, winner)
    if record.against and record.against.regressed:
        tone = "bad"
        verdict = [*(f"{line}." for line in held(record) if line.startswith("Regression")), *verdict]
    names = [row.backend for row in record.rows]
    shown = replace(table(record), notes=[*reasons(record)])
    return section_of(
        record,
        [shown],
        ["compare", "run.yaml", "--backends", ",".join(names), "--rounds", str(record.rounds)],
        title=title(record.config, record.dataset),
        question=QUESTION,
        verdict=verdict,
        tone=tone,
        grids=[Grid(shown, marked=[names.index(first.backend)] if first else [])],
        pictures=[*_pictures(record, record.results())],
        details=[*_tensors(record)],
        conditions=[*_measured(record), *_conditions(record)],
    )


def progress(event: Progress) -> tuple[str, Table]:
    """The table as far as it is known, and the process that runs now."""
    now = table(event.record)
    lines = [now.title, *parity(event.record.parity), f"{event.stage}, {event.backend}"]
    return "\n".join(lines) + f" ({event.done + 1} of {event.total})", now


def held(record: schema.Comparison) -> Iterator[str]:
    """Every backend beside the baseline, if the comparison was held against one."""
    if (against := record.against) is None:
        return
    of = f"baseline {against.name}" + f" ({against.revision})" * bool(against.revision)
    for change in against.changes:
        slowdown, pyg = change.slowdown, change.beside_pyg
        if slowdown is None:
            yield f"Regression: {change.backend} did not run to its end, as it did in {of}"
            continue
        ends = [units.interval(units.ratio, slowdown.low, slowdown.high, "95% interval {}") or "no interval"]
        if pyg:
            interval = units.interval(units.ratio, pyg.low, pyg.high, ", {}")
            ends.append(f"over pyg {units.ratio(pyg.ratio)}{interval}")
        verdict = f"{'not ' * (not change.regressed)}slower by more than {100 * against.limit:.3g}% beyond doubt"
        start = "Regression: " * change.regressed + f"{change.backend}: an epoch takes"
        yield f"{start} {units.ratio(slowdown.ratio)} that of {of} ({'; '.join(ends)}): {verdict}"


def reasons(record: schema.Comparison | Inference) -> Iterator[str]:
    """Tell why rows have no figures."""
    for row in record.rows:
        if row.reason:
            name = row.backend.partition(":")[0]
            yield f"{row.backend}: {row.reason.removeprefix(f'backend {name!r} is unavailable: ')}"


def _conditions(record: schema.Comparison) -> Iterator[str]:
    for row in record.rows:
        if told := [f"{phase} {units.seconds(time.median)}" for phase, time in row.parts_s.items()]:
            yield f"{row.backend}, within load and forward: {', '.join(told)}"
    for row in record.rows:
        yield from kernels(row.bindings, row.backend)
        yield from used(row.choices, row.tuning_s, row.backend)
    yield from circumstances(record)


def _measured(record: schema.Comparison) -> Iterator[str]:
    """How a page says that it was measured, beside what is part of its verdict."""
    warmup = record.config.get("measure", {}).get("warmup")
    without = f", without the first {units.counted(warmup, 'epoch')} of each" if warmup else ""
    yield (
        f"Every backend ran {_size(record)}, each round in a fresh process, rounds of different backends in "
        f"turn. Times are medians over all rounds{without}; ranges are 95% bootstrap intervals. Evaluation is "
        "never timed"
    )
    yield from list(parity(record.parity))[bool(record.parity.ok) :]  # whose first is part of the verdict
    yield from held(record)


def _size(record: schema.Comparison) -> str:
    return f"{units.counted(record.rounds, 'round')} of {units.counted(record.epochs, 'epoch')}"


def parity(parity: Parity, compared: str = "logits and every gradient") -> Iterator[str]:
    """Tell whether all backends compute the same, how far they are apart, and what the verdict covers."""
    if parity.ok is None:
        yield f"Parity: not checked{f': {parity.reason}' if parity.reason else ''}; no speedup is given"
        return
    ran = ((name, verdict) for name, verdict in parity.backends.items() if verdict.ok is not None)
    checked = {name: verdict for name, verdict in ran if name != parity.reference}
    if parity.ok:
        known = ((name, verdict.rel_rms) for name, verdict in checked.items() if verdict.rel_rms is not None)
        errors = ", ".join(f"{name} {units.power(size)}" for name, size in known)
        moved = f"times what autocast moves {parity.reference}"
        tolerances = {
            name: units.power(own.tolerance) + f" or {own.autocasts:g} {moved}" * bool(own.autocasts)
            for name, own in checked.items()
            if own.tolerance != parity.tolerance
        }
        within = f"{compared} within {units.power(parity.tolerance)} of {parity.reference}"
        within += "".join(f"; {names} within {size}" for size, names in _by_value(tolerances))
        yield f"Parity: green, {within}" + f" (largest relative error: {errors})" * bool(errors)
    else:
        yield f"Parity: red against {parity.reference}; no speedup is given for a backend whose result differs"
        yield from (f"{name}: {verdict.red}" for name, verdict in checked.items() if verdict.red)
    if parity.checked:
        yield f"Checked: {'; '.join(parity.checked)}"
    alone = {name: "; ".join(verdict.unchecked) for name, verdict in parity.backends.items() if verdict.unchecked}
    unchecked = [*parity.unchecked, *(f"{names}: {sentences}" for sentences, names in _by_value(alone))]
    if unchecked:
        yield f"Not checked: {'; '.join(unchecked)}"


def _by_value(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Every text, once, and the names that have it."""
    for text in dict.fromkeys(texts.values()):
        yield text, ", ".join(name for name, own in texts.items() if own == text)


def _baselines(record: schema.Comparison) -> list[str]:
    """List baselines: pyg, dgl and PyG's own loader where they are rows, and another of PyG's that is faster."""
    names = ["pyg", *(row.backend for row in record.rows if row.backend in (PEER, LOADER))]
    ratios = (row.speedup[FASTEST] for row in record.rows)
    fastest = next((ratio.baseline for ratio in ratios if ratio), FASTEST)
    return names if fastest in ("pyg", LOADER) else [*names, fastest]


def _rows(record: schema.Comparison) -> Iterator[Cells]:
    metric = next((row.metrics.name for row in record.rows if row.metrics), "metric")
    phases = [*["load"] * any(row.load_s for row in record.rows), "forward", "backward"]
    baselines, counted = _baselines(record), any(row.energy_j is not None for row in record.rows)
    for row in record.rows:
        summaries = {phase: getattr(row, f"{phase}_s") for phase in phases}
        energy = NOTHING if row.energy_j is None else f"{row.energy_j:.3g} J"
        test = row.metrics.test if row.metrics else None
        yield {
            "backend": backend_cell(row),
            **{phase: units.seconds(time.median) if time else NOTHING for phase, time in summaries.items()},
            "epoch": time_cell(row.epoch_s) if row.epoch_s else ended(row.status),
            **beside_pyg(row, baselines),
            **({"energy": energy} if counted else {}),
            "prepare,\npaid in": prepare_cell(row.prepare_s, row.break_even_epochs),
            f"test\n{metric}": NOTHING if test is None else f"{test:.4f}",
        }


def backend_cell(row: Row | Inferred) -> Cell:
    """A backend above its options."""
    name, _, options = row.backend.partition(":")
    return Cell(name, options.replace(":", " "))


def beside_pyg(row: Row | Inferred, baselines: Sequence[str]) -> dict[str, Cell]:
    """By heading speedups above their intervals, and peak memory above its share of pyg's."""
    speedups = {f"speedup vs\n{NAMES.get(each, each)}": row.speedup.get(each) for each in baselines}
    cells = {
        heading: Cell("1x", "baseline") if each and each.baseline == row.backend else ratio_cell(each)
        for heading, each in speedups.items()
    }
    of_pyg = f"{units.ratio(row.memory_ratio)} pyg" if row.memory_ratio and row.backend != "pyg" else ""
    peak = row.peak_memory_bytes
    return cells | {"peak\nmemory": NOTHING if peak is None else Cell(units.size(peak), of_pyg)}


def fastest(rows: Sequence[R], time: Callable[[R], Summary | None], besides: str = "") -> R | None:
    """The fastest of the rows that are proven right, pyg among them; None where there is but one."""
    proven = {row.backend: (known.median, row) for row in rows if (known := time(row)) and row.speedup.get("pyg")}
    others = [each for name, each in proven.items() if name != besides]
    return min(others, key=itemgetter(0))[1] if others and len(proven) > 1 else None


def _verdict(record: schema.Comparison, winner: Row | None) -> tuple[Tone, list[str]]:
    checked = record.parity
    if checked.ok is None:
        why = f": {checked.reason}" if checked.reason else ""
        return "bad", [f"Parity was not checked, so no speedup is given{why}."]
    red = [f"{name} gets no speedup: {verdict.red}." for name, verdict in checked.backends.items() if verdict.red]
    tone, sentences = against_others(winner, "trains")
    if winner and not red:
        sentences.append(f"{next(parity(checked))}.")
    return "bad" if red else tone, [*red, *sentences]


def against_others(row: Row | Inferred | None, does: str) -> tuple[Tone, list[str]]:
    """Hold a row against the fastest other that it can be held against, and pyg: a sentence each."""
    if row is None:
        return "plain", ["No backend can be held against pyg."]
    others = {each.baseline: each for each in row.speedup.values() if each and each.baseline != row.backend}
    first = min(others.values(), key=lambda each: each.ratio)
    baselines = dict.fromkeys((first.baseline, "pyg"))
    told = [_faster(row.backend, does, others[name]) for name in baselines]
    return "good" if first.low > 1 else "plain", told


def _faster(backend: str, does: str, speedup: Speedup) -> str:
    interval = units.interval(units.ratio, speedup.low, speedup.high, "95% interval {}") or "no interval"
    if speedup.low <= 1 <= speedup.high:
        return f"{backend} and {speedup.baseline} take the same time as far as can be told ({interval})."
    if speedup.ratio < 1:
        share = units.ratio(speedup.ratio)
        return f"No backend beats {speedup.baseline}: {backend} runs at {share} its speed ({interval})."
    return f"{backend} {does} {units.ratio(speedup.ratio)} as fast as {speedup.baseline} ({interval})."


def _tensors(record: schema.Comparison) -> Iterator[Grid]:
    """How far every tensor of every backend is from the reference's."""
    judged = {name: verdict for name, verdict in record.parity.backends.items() if verdict.tensors}
    if not judged:
        return
    tensors = dict.fromkeys(tensor for verdict in judged.values() for tensor in verdict.tensors)
    rows = [[Cell(each), *(_error(verdict.tensors.get(each)) for verdict in judged.values())] for each in tensors]
    title = f"Parity, tensor by tensor: relative error against {record.parity.reference}, and of the worst row"
    yield Grid(Table(["tensor", *judged], rows, title=title))


def _error(error: TensorError | None) -> Cell:
    if error is None:
        return NOTHING
    worst, size = error.worst_row, "–" if error.rel_rms is None else units.power(error.rel_rms)
    return Cell(size, error.problem or ("" if worst is None else f"worst row {units.power(worst)}"))


def _pictures(record: schema.Comparison, rounds: Rounds) -> Iterator[Picture]:
    timed = [row for row in record.rows if row.epoch_s]
    if not timed:
        return
    yield _epochs(timed, rounds)
    if phases := {row.backend: _phases(row) for row in timed if row.forward_s and row.backward_s}:
        yield Picture("What an epoch is made of", "Medians; between phases, Python runs.", stacks(phases))
    if memory := {row.backend: row.peak_memory_bytes for row in timed if row.peak_memory_bytes}:
        highest = "The highest of the process, or of the device, over all rounds."
        yield Picture("Peak memory", highest, sizes(memory))
    metric = next((row.metrics.name for row in timed if row.metrics), "metric")
    last = {name: results[-1] for name, results in rounds.items()}
    quality = {name: over_repeats(each.evaluations, attrgetter("val")) for name, each in last.items()}
    losses = {name: over_repeats(each.samples, attrgetter("loss")) for name, each in last.items()}
    for lines, what in ((quality, f"validation {metric}"), (losses, "training loss")):
        if any(len(points) > 1 for points in lines.values()):
            drawn = curves({name: points for name, points in lines.items() if points}, what)
            yield Picture(f"{what.capitalize()} over epochs", "The last round of every backend.", drawn)


def _epochs(timed: Sequence[Row], rounds: Rounds) -> Picture:
    """Every epoch where the rounds are known, otherwise the median epoch of every round."""
    rows = []
    for row in timed:
        assert row.epoch_s
        samples = [sample for result in rounds.get(row.backend, ()) for sample in result.samples]
        alone = Strip(row.backend, row.round_epoch_s, [], row.epoch_s)
        rows.append(strip(row.backend, samples, row.epoch_s) if samples else alone)
    known = all(row.backend in rounds for row in timed)
    dots = "A dot is an epoch, a ring one of warm-up" if known else "A dot is the median epoch of a round"
    name = "Every epoch of every backend" if known else "The median epoch of every round"
    return Picture(name, f"{dots}; the line is the median, the band its 95% interval.", Strips(rows))


def _phases(row: Row) -> dict[str, float]:
    assert row.epoch_s
    names = ("load", "forward", "backward", "optimizer")
    phases = {name: summary.median for name in names if (summary := getattr(row, f"{name}_s"))}
    between = "between" if row.optimizer_s else "optimizer and between"
    return {**phases, between: max(0.0, row.epoch_s.median - sum(phases.values()))}
