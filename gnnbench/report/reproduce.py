"""A reproduction as tables: every claim beside our measurement of it, then all measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gnnbench import units
from gnnbench.report import figures
from gnnbench.report.figures import NOTHING, ended
from gnnbench.report.run import machine
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from gnnbench.papers import Claim, Progress, Reproduction
    from gnnbench.papers._records import Estimate, Finding, Measurement
    from gnnbench.results.schema import Ratio

MEANINGS = {  # of verdicts
    ("exceeded", "reproduced", "not reached"): (
        "Exceeded: even the low end, or the median or mean itself, is above the published value; reproduced: the "
        "high end, or the median or mean, reaches 90% of it"
    ),
    ("not comparable",): "Not comparable: published on a GPU and measured on a CPU; the ratio is no verdict",
    ("equal", "different"): "Equal, different: the width that gains most, beside the published one",
}
KINDS = {"training": "Epochs", "ops": "Single ops", "tuning": "Gain by tuning over widths"}


def tables(reproduction: Reproduction) -> list[Table]:
    """The measurements of each kind of cell, then the claims."""
    kind = {cell.key: cell.definition["kind"] for cell in reproduction.cells}
    of_kind = {
        name: [measurement for measurement in reproduction.measurements if kind[measurement.cell] == name]
        for name in KINDS
    }
    measured = [_measured(KINDS[name], of_kind[name], reproduction.paper.ours) for name in KINDS if of_kind[name]]
    return [*measured, claims(reproduction)]


def title(reproduction: Reproduction) -> str:
    """Paper and scale."""
    return f"{reproduction.paper.title}: scale {reproduction.scale}"


def claims(reproduction: Reproduction) -> Table:
    """One line per measured quantity with all that was published of it; protocols, machines and reasons below."""
    rows = [_claimed(same) for same in shared(reproduction.findings)]
    heading = (
        "claim",
        "published",
        "ours, paper's\nprotocol",
        "ours, corrected\nprotocol",
        "ours over\npublished",
        "verdict",
    )
    return Table(heading, rows, title=title(reproduction), notes=[*_notes(reproduction)], prose=(0, 5))


def progress(event: Progress) -> tuple[str, Table]:
    """The claims as far as they are known, and the cell that runs now."""
    step = f", {event.what}" if event.what else ""
    line = f"{event.cell} ({event.done + 1} of {event.total}){step}"
    return f"{title(event.reproduction)}\n{line}", claims(event.reproduction)


def value(claim: Claim, number: float) -> str:
    """A number in the unit of a claim."""
    return units.ratio(number) if claim.unit == "x" else f"{number:g} {claim.unit}"


def shared(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings in groups whose claims are compared with the same measurement."""
    groups: dict[Any, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.claim.measured, []).append(finding)
    return list(groups.values())


def _claimed(same: Sequence[Finding]) -> list[Cell]:
    first = same[0]
    ratios = [one.corrected.ratio if one.corrected else None for one in same]
    return [
        Cell(first.claim.name, f"{first.claim.over}, vs {first.claim.baseline}"),
        _lines(f"{value(one.claim, one.claim.value)} {one.claim.kind}" for one in same),
        _estimate(first.claim, first.published),
        _estimate(first.claim, first.corrected),
        NOTHING if None in ratios else _lines(units.ratio(ratio) for ratio in ratios if ratio is not None),
        _lines(one.verdict for one in same),
    ]


def _lines(texts: Iterable[str]) -> Cell:
    return Cell("\n".join(texts))


def _estimate(claim: Claim, estimate: Estimate | None) -> Cell:
    if estimate is None:
        return NOTHING
    ends = ""
    if estimate.low is not None and estimate.high is not None and estimate.low < estimate.high:
        ends = units.ratio(estimate.low, estimate.high)
    return Cell(value(claim, estimate.value), ends)


def _notes(reproduction: Reproduction) -> Iterator[str]:
    paper = reproduction.paper
    yield f"Paper's protocol: {paper.published}"
    yield f"Corrected protocol: {paper.corrected}"
    yield (
        "Ranges: 95% bootstrap interval of the case with the largest ratio; for medians and means, the lowest and "
        "highest of all cases"
    )
    verdicts = {finding.verdict for finding in reproduction.findings}
    yield from (meaning for names, meaning in MEANINGS.items() if verdicts & {*names})
    yield from paper.notes
    unmeasured = [finding for finding in reproduction.findings if finding.reason]
    yield from dict.fromkeys(f"{one.claim.name}: not run because {one.reason}" for one in unmeasured)
    for cell in reproduction.cells:
        if cell.outcome and cell.outcome.status != "ok":
            yield f"Cell {cell.key}: {ended(cell.outcome.status)}: {cell.outcome.reason}"
    made_up = dict.fromkeys(
        measurement.graph for measurement in reproduction.measurements if "synthetic" in measurement.graph
    )
    if made_up:
        yield f"Synthetic stand-ins, not the paper's data: {'; '.join(made_up)}"
    hardware = dict.fromkeys(finding.claim.hardware for finding in reproduction.findings if finding.claim.hardware)
    yield f"Published on: {', '.join([*hardware, paper.machine])}"
    yield from machine(reproduction.environment)
    sources = dict.fromkeys(f"{finding.claim.kind}: {finding.claim.source}" for finding in reproduction.findings)
    yield f"Sources: {'; '.join(sources)}"


def _measured(heading: str, measurements: Sequence[Measurement], backend: str) -> Table:
    """One line per case; every implementation with its time, and below it the speedup of ours over it."""
    cases: dict[Any, dict[str, Measurement]] = {}
    for one in measurements:
        cases.setdefault(one.case, {})[one.implementation] = one
    names = dict.fromkeys(name for one in measurements for name in (one.implementation, *one.speedup))
    others = [name for name in names if name != backend]
    rows = []
    for case in cases.values():
        ours = case.get(backend) or next(iter(case.values()))
        speedups = ours.speedup if backend in case else {}
        rows.append(
            [
                Cell(_case(ours), ours.device),
                _time(case.get(backend)),
                *(_peer(case.get(name), speedups.get(name)) for name in others),
                _more_memory(case, backend),
                _preparation(ours),
            ]
        )
    columns = [
        "case",
        "ours",
        *(f"{named(name, backend)},\nours vs it" for name in others),
        "memory\nabove rest",
        "prepare,\npaid in",
    ]
    kept = [place for place in range(len(columns)) if any(row[place] != NOTHING for row in rows)]
    notes = dict.fromkeys(
        f"{named(one.implementation, backend)}: {one.reason}" for one in measurements if one.reason
    )
    return Table(
        [columns[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
        title=heading,
        notes=list(notes),
    )


def named(implementation: str, backend: str) -> str:
    """Return what tables and pictures call an implementation."""
    return implementation.replace(backend, "ours")


def _case(measurement: Measurement) -> str:
    parts = [measurement.op if measurement.phase == "epoch" else f"{measurement.op} {measurement.phase}"]
    if measurement.phase != "epoch":
        parts += [f"width {measurement.width}"] + [f"{measurement.heads} heads"] * (measurement.heads > 1)
    return f"{', '.join(parts)} on {measurement.graph}" + f" by {measurement.order}" * (
        measurement.order != "none"
    )


def _time(measurement: Measurement | None) -> Cell:
    if measurement is None:
        return NOTHING
    seconds = measurement.time_s
    return Cell(ended(measurement.status) if seconds is None else units.seconds(seconds))


def _peer(measurement: Measurement | None, speedup: Ratio | None) -> Cell:
    """The time of a peer above what ours gains, which is all there is of one that was not measured by itself."""
    if speedup is None:
        return _time(measurement)
    return Cell(_time(measurement).text, units.ratio(speedup.ratio)) if measurement else figures.ratio(speedup)


def _more_memory(case: dict[str, Measurement], backend: str) -> Cell:
    """The memory of ours, and of the first other implementation that was measured."""
    ours = case.get(backend)
    if ours is None or ours.memory_bytes is None:
        return NOTHING
    others = (one for name, one in case.items() if not name.startswith(backend))
    more = (f"{other.implementation} {units.size(other.memory_bytes)}" for other in others if other.memory_bytes)
    return Cell(units.size(ours.memory_bytes), next(more, ""))


def _preparation(measurement: Measurement) -> Cell:
    if measurement.prepare_s is None:
        return NOTHING
    paid = measurement.break_even_epochs
    return Cell(units.seconds(measurement.prepare_s), "" if paid is None else units.counted(paid, "epoch"))
