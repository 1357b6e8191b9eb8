"""A comparison on a page: which backend is fastest, and whether it computes what PyG computes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report import comparison as report
from gnnbench.report import run
from gnnbench.report.figures import NOTHING
from gnnbench.report.page.pictures import Picture, Strip, curves, sizes, stacks, strips
from gnnbench.report.page.section import Grid, Section, Tone
from gnnbench.report.tables import Cell, Table
from gnnbench.report.tune import used

if TYPE_CHECKING:
    from gnnbench.comparison.record import Comparison, Row
    from gnnbench.results.schema import Result

Rounds = Mapping[str, Sequence["Result"]]
NONE: Rounds = {}
QUESTION = "Which backend trains this model fastest, and does each compute what PyG computes?"


def section(record: Comparison, rounds: Rounds = NONE) -> Section:
    """A comparison; `rounds` are the results behind it, by backend, where they are known."""
    winner, fastest = _fastest(record, besides="pyg"), _fastest(record)
    table = report.table(record)
    tone, verdict = _verdict(record, winner)
    if record.against and record.against.regressed:
        tone = "bad"
        verdict = [*(f"{line}." for line in report.held(record) if line.startswith("Regression")), *verdict]
    names = [row.backend for row in record.rows]
    return Section(
        kind="Comparison",
        title=run.title(record.config, record.dataset),
        question=QUESTION,
        verdict=verdict,
        tone=tone,
        advice=record.warnings,
        grids=[
            Grid(
                replace(table, notes=[*_reasons(record)]),
                marked=[names.index(fastest.backend)] if fastest else [],
            )
        ],
        pictures=[*_pictures(record, rounds)],
        details=[*_parity(record)],
        conditions=[*_conditions(record)],
        environment=record.environment,
        config=record.config,
        command=shlex.join(
            ["gnnbench", "compare", "run.yaml", "--backends", ",".join(names), "--rounds", str(record.rounds)]
        ),
    )


def _fastest(record: Comparison, besides: str = "") -> Row | None:
    """The fastest of the rows that are proven right, pyg among them; None where there is but one."""
    proven = [row for row in record.rows if row.epoch_s and row.speedup.get("pyg")]
    others = [row for row in proven if row.backend != besides]
    fastest = min(others, key=lambda row: row.epoch_s.median if row.epoch_s else 0.0, default=None)
    return fastest if len(proven) > 1 else None


def _verdict(record: Comparison, winner: Row | None) -> tuple[Tone, list[str]]:
    parity = record.parity
    if parity.ok is None:
        return "bad", [
            f"Parity was not checked, so no speedup is given{f': {parity.reason}' if parity.reason else ''}."
        ]
    red = [f"{name} gets no speedup: {verdict.red}." for name, verdict in parity.backends.items() if verdict.red]
    if winner is None:
        return "bad" if red else "plain", [*red, "No backend can be held against pyg."]
    sentences = [_faster(winner, "pyg")]
    fastest = winner.speedup.get(report.FASTEST)
    if fastest and fastest.baseline not in ("pyg", winner.backend):
        sentences.append(f"{_faster(winner, report.FASTEST)[:-1]}, the fastest of PyG's own backends.")
    if not red:
        sentences.append(f"{next(report.parity(parity))}.")
    beyond = winner.speedup["pyg"]
    good: Tone = "good" if beyond and beyond.low > 1 else "plain"
    return "bad" if red else good, [*red, *sentences]


def _faster(row: Row, baseline: str) -> str:
    speedup = row.speedup[baseline]
    assert speedup is not None
    interval = units.interval(units.ratio, speedup.low, speedup.high, "95% interval {}") or "no interval"
    if speedup.low <= 1 <= speedup.high:
        return f"{row.backend} and {speedup.baseline} take the same time as far as can be told ({interval})."
    if speedup.ratio < 1:
        share = units.ratio(speedup.ratio)
        return f"No backend beats {speedup.baseline}: {row.backend} runs at {share} its speed ({interval})."
    return f"{row.backend} trains {units.ratio(speedup.ratio)} as fast as {speedup.baseline} ({interval})."


def _reasons(record: Comparison) -> Iterator[str]:
    for row in record.rows:
        if row.reason:
            yield f"{row.backend}: {row.reason}"


def _conditions(record: Comparison) -> Iterator[str]:
    size = f"{units.counted(record.rounds, 'round')} of {units.counted(record.epochs, 'epoch')}"
    warmup = record.config.get("measure", {}).get("warmup")
    without = f", without the first {units.counted(warmup, 'epoch')} of each" if warmup else ""
    yield (
        f"Every backend ran {size}, each round in a fresh process, rounds of different backends in turn. Times "
        f"are medians over all rounds{without}; ranges are 95% bootstrap intervals. Evaluation is never timed"
    )
    yield from list(report.parity(record.parity))[bool(record.parity.ok) :]  # whose first is part of the verdict
    yield from report.held(record)
    yield from report.parts(record)
    for row in record.rows:
        yield from run.kernels(row.bindings, row.backend)
        yield from used(row.choices, row.tuning_s, row.backend)
    yield from run.graph(record.dataset_facts)
    yield from run.machine(record.environment)


def _parity(record: Comparison) -> Iterator[Grid]:
    """How far every tensor of every backend is from the reference's."""
    judged = {name: verdict for name, verdict in record.parity.backends.items() if verdict.tensors}
    if not judged:
        return
    rows = []
    for tensor in dict.fromkeys(tensor for verdict in judged.values() for tensor in verdict.tensors):
        errors = (verdict.tensors.get(tensor) for verdict in judged.values())
        rows.append([Cell(tensor), *(_error(error) if error else NOTHING for error in errors)])
    title = f"Parity, tensor by tensor: relative error against {record.parity.reference}, and of the worst row"
    yield Grid(Table(["tensor", *judged], rows, title=title))


def _error(error: object) -> Cell:
    rms, worst = getattr(error, "rel_rms", None), getattr(error, "worst_row", None)
    problem = getattr(error, "problem", "")
    size = "–" if rms is None else _power(rms)
    return Cell(size, problem or ("" if worst is None else f"worst row {_power(worst)}"))


def _power(value: float) -> str:
    return units.power(value) if value else "0"


def _pictures(record: Comparison, rounds: Rounds) -> Iterator[Picture]:
    timed = [row for row in record.rows if row.epoch_s]
    if not timed:
        return
    yield _epochs(timed, rounds)
    phases = {row.backend: _phases(row) for row in timed if row.forward_s and row.backward_s}
    if phases:
        yield stacks(
            "What an epoch is made of",
            "Medians; between phases, Python runs.",
            phases,
        )
    memory = {row.backend: row.peak_memory_bytes for row in timed if row.peak_memory_bytes}
    if memory:
        yield sizes("Peak memory", "The highest of the process, or of the device, over all rounds.", memory)
    quality = {name: _quality(results[-1]) for name, results in rounds.items()}
    if any(len(points) > 1 for points in quality.values()):
        metric = next((row.metrics.name for row in timed if row.metrics), "metric")
        lines = {name: points for name, points in quality.items() if points}
        yield curves(
            f"Validation {metric} over epochs",
            "The last round of every backend.",
            lines,
            f"validation {metric}",
        )
    losses = {
        name: [(float(sample.epoch), sample.loss) for sample in results[-1].samples]
        for name, results in rounds.items()
    }
    if any(len(points) > 1 for points in losses.values()):
        yield curves("Training loss over epochs", "The last round of every backend.", losses, "loss")


def _epochs(timed: Sequence[Row], rounds: Rounds) -> Picture:
    """Every epoch where the rounds are known, otherwise the median epoch of every round."""
    strips_ = []
    for row in timed:
        assert row.epoch_s
        samples = [sample for result in rounds.get(row.backend, ()) for sample in result.samples]
        counted = [sample.epoch_s for sample in samples if not sample.warmup] if samples else row.round_epoch_s
        warmup = [sample.epoch_s for sample in samples if sample.warmup]
        strips_.append(Strip(row.backend, counted, warmup, row.epoch_s))
    known = all(row.backend in rounds for row in timed)
    dots = "A dot is an epoch, a ring one of warm-up" if known else "A dot is the median epoch of a round"
    title = "Every epoch of every backend" if known else "The median epoch of every round"
    return strips(title, f"{dots}; the line is the median, the band its 95% interval.", strips_)


def _phases(row: Row) -> dict[str, float]:
    assert row.epoch_s
    names = ("load", "forward", "backward", "optimizer")
    parts = {name: summary.median for name in names if (summary := getattr(row, f"{name}_s"))}
    between = "between" if row.optimizer_s else "optimizer and between"
    return {**parts, between: max(0.0, row.epoch_s.median - sum(parts.values()))}


def _quality(result: Result) -> list[tuple[float, float]]:
    return [(float(one.epoch), one.val) for one in result.evaluations if one.val is not None]
