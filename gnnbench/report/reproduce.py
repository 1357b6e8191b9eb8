"""A reproduction as tables and pictures: every claim beside our measurement of it, then all measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from gnnbench import units
from gnnbench.report.run import STATUS, machine
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from gnnbench.report.plots import Bars, Panel
    from gnnbench.reproduce import Claim, Reproduction
    from gnnbench.reproduce._records import Estimate, Finding, Measurement

NOTHING = Cell("–")
MEANINGS = {  # of verdicts
    ("exceeded", "reproduced", "not reached"): (
        "Exceeded: even the low end, or the median itself, is above the published value; reproduced: the high "
        "end, or the median, reaches 90% of it"
    ),
    ("not comparable",): "Not comparable: published on a GPU and measured on a CPU; the ratio is no verdict",
    ("equal", "different"): "Equal, different: the width that gains most, beside the published one",
}
KINDS = {"training": "Epochs", "ops": "Single ops", "tuning": "Gain by tuning over widths"}


def tables(found: Reproduction, saved: Path | None = None) -> list[Table]:
    """The measurements of each kind of cell, then the claims; `saved` is the folder of the JSON."""
    kind = {cell.key: cell.definition["kind"] for cell in found.cells}
    of_kind = {name: [one for one in found.measurements if kind[one.cell] == name] for name in KINDS}
    measured = [_measured(KINDS[name], of_kind[name], found.paper.ours) for name in KINDS if of_kind[name]]
    return [*measured, claims(found, saved)]


def title(found: Reproduction) -> str:
    """Paper and scale."""
    return f"{found.paper.title}: scale {found.scale}"


def claims(found: Reproduction, saved: Path | None = None) -> Table:
    """One line per measured quantity with all that was published of it; protocols, machines and reasons below."""
    rows = [_claimed(same) for same in _shared(found.findings)]
    heading = (
        "claim",
        "published",
        "ours, paper's\nprotocol",
        "ours, corrected\nprotocol",
        "ours over\npublished",
        "verdict",
    )
    where = [f"Results: {saved / 'reproduction.json'}"] if saved else []
    return Table(heading, rows, title=title(found), notes=[*_notes(found), *where], prose=(0, 5))


def value(claim: Claim, number: float) -> str:
    """A number in the unit of a claim."""
    return units.ratio(number) if claim.unit == "x" else f"{number:g} {claim.unit}"


def records(found: Reproduction) -> list[dict[str, Any]]:
    """Every measurement in numbers, with the names of its JSON."""
    return [one.model_dump(exclude_none=True) for one in found.measurements]


def pictures(found: Reproduction) -> dict[str, list[Panel | Bars]]:
    """By the name of its file: speedups beside what was published, memory, and curves over widths."""
    drawn: dict[str, list[Panel | Bars]] = {
        "speedups": _beside_claims(found, "time"),
        "memory": [*_beside_claims(found, "memory"), *_memory(found)],
        "widths": [*_widths(found)],
    }
    return {name: panels for name, panels in drawn.items() if panels}


def _shared(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings in groups whose claims are compared with the same measurement."""
    groups: dict[Any, list[Finding]] = {}
    for one in findings:
        groups.setdefault(one.claim.measured, []).append(one)
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


def _estimate(claim: Claim, found: Estimate | None) -> Cell:
    if found is None:
        return NOTHING
    ends = ""
    if found.low is not None and found.high is not None and found.low < found.high:
        ends = units.ratio(found.low, found.high)
    return Cell(value(claim, found.value), ends)


def _notes(found: Reproduction) -> Iterator[str]:
    paper = found.paper
    yield f"Paper's protocol: {paper.published}"
    yield f"Corrected protocol: {paper.corrected}"
    yield (
        "Ranges: 95% bootstrap interval of the case with the largest ratio; for medians, the lowest and highest "
        "of all cases"
    )
    verdicts = {one.verdict for one in found.findings}
    yield from (meaning for names, meaning in MEANINGS.items() if verdicts & {*names})
    yield from paper.notes
    unmeasured = [one for one in found.findings if one.reason]
    yield from dict.fromkeys(f"{one.claim.name}: not run because {one.reason}" for one in unmeasured)
    for cell in found.cells:
        if cell.outcome and cell.outcome.status != "ok":
            yield f"Cell {cell.key}: {STATUS.get(cell.outcome.status, cell.outcome.status)}: {cell.outcome.reason}"
    made_up = dict.fromkeys(one.graph for one in found.measurements if "synthetic" in one.graph)
    if made_up:
        yield f"Synthetic stand-ins, not the paper's data: {'; '.join(made_up)}"
    hardware = dict.fromkeys(one.claim.hardware for one in found.findings if one.claim.hardware)
    yield f"Published on: {', '.join([*hardware, paper.machine])}"
    yield from machine(found.environment)
    sources = dict.fromkeys(f"{one.claim.kind}: {one.claim.source}" for one in found.findings)
    yield f"Sources: {'; '.join(sources)}"


def _measured(heading: str, found: Sequence[Measurement], backend: str) -> Table:
    """One line per case; every implementation with its time, and below it the speedup of ours over it."""
    cases: dict[Any, dict[str, Measurement]] = {}
    for one in found:
        cases.setdefault(one.case, {})[one.implementation] = one
    names = dict.fromkeys(name for one in found for name in (one.implementation, *one.speedup))
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
        *(f"{_named(name, backend)},\nours vs it" for name in others),
        "memory\nabove rest",
        "prepare,\npaid in",
    ]
    kept = [place for place in range(len(columns)) if any(row[place] != NOTHING for row in rows)]
    notes = dict.fromkeys(f"{_named(one.implementation, backend)}: {one.reason}" for one in found if one.reason)
    return Table(
        [columns[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
        title=heading,
        notes=list(notes),
    )


def _named(implementation: str, backend: str) -> str:
    return implementation.replace(backend, "ours")


def _case(one: Measurement) -> str:
    parts = [one.op if one.phase == "epoch" else f"{one.op} {one.phase}"]
    if one.phase != "epoch":
        parts += [f"width {one.width}"] + [f"{one.heads} heads"] * (one.heads > 1)
    return f"{', '.join(parts)} on {one.graph}" + f" by {one.order}" * (one.order != "none")


def _time(one: Measurement | None) -> Cell:
    if one is None:
        return NOTHING
    return Cell(STATUS.get(one.status, one.status) if one.time_s is None else units.seconds(one.time_s))


def _peer(one: Measurement | None, speedup: Any) -> Cell:
    if speedup is None:
        return _time(one)
    ratio = units.ratio(speedup.ratio)
    return Cell(_time(one).text, ratio) if one else Cell(ratio, units.ratio(speedup.low, speedup.high))


def _more_memory(case: dict[str, Measurement], backend: str) -> Cell:
    """The memory of ours, and of the first other implementation that was measured."""
    ours = case.get(backend)
    if ours is None or ours.memory_bytes is None:
        return NOTHING
    others = (one for name, one in case.items() if not name.startswith(backend))
    more = (f"{one.implementation} {units.size(one.memory_bytes)}" for one in others if one.memory_bytes)
    return Cell(units.size(ours.memory_bytes), next(more, ""))


def _preparation(one: Measurement) -> Cell:
    if one.prepare_s is None:
        return NOTHING
    paid = one.break_even_epochs
    return Cell(units.seconds(one.prepare_s), "" if paid is None else units.counted(paid, "epoch"))


def _beside_claims(found: Reproduction, quantity: str) -> list[Panel | Bars]:
    from gnnbench.report.plots import Bars, Series

    shown = [same for same in _shared(found.findings) if same[0].claim.quantity == quantity and same[0].corrected]
    if not shown:
        return []
    values = [[one.claim.value for one in same] for same in shown]
    published, corrected = ([getattr(same[0], name) for same in shown] for name in ("published", "corrected"))
    apart = any(one.verdict == "not comparable" for same in shown for one in same)
    return [
        Bars(
            f"{quantity}: published and ours" + " (GPU and CPU: not comparable)" * apart,
            "times faster" if quantity == "time" else "times less memory",
            [_wrapped(same) for same in shown],
            [
                Series(
                    "published; whisker: the same claim elsewhere",
                    [each[0] for each in values],
                    [(min(each), max(each)) if len(each) > 1 else None for each in values],
                ),
                Series("ours, paper's protocol", [one and one.value for one in published], [None] * len(shown)),
                Series(
                    "ours, corrected protocol, with range",
                    [one.value for one in corrected],
                    [(one.low, one.high) for one in corrected],
                ),
            ],
        )
    ]


def _wrapped(same: Sequence[Finding]) -> str:
    claim = same[0].claim
    phase = "" if claim.phase == "epoch" else f"\n{claim.phase}"
    kinds = ",\n".join(dict.fromkeys(one.claim.kind for one in same))
    return f"{claim.op}{phase}\n{claim.over} vs {claim.baseline}\n({kinds})"


def _memory(found: Reproduction) -> list[Panel | Bars]:
    """Memory of every implementation at the largest width and number of heads, on the first graph as it came."""
    from gnnbench.report.plots import Bars, Series

    groups: dict[tuple[str, str], list[Measurement]] = {}
    for one in found.measurements:
        if one.memory_bytes and one.order == "none" and one.graph == found.measurements[0].graph:
            groups.setdefault((one.op, one.phase), []).append(one)
    largest = {
        key: {
            one.implementation: one.memory_bytes
            for one in group
            if (one.width, one.heads) == max((other.width, other.heads) for other in group)
        }
        for key, group in groups.items()
    }
    names = dict.fromkeys(name for sizes in largest.values() for name in sizes)
    if len(names) < 2:
        return []
    mib = [
        Series(
            _named(name, found.paper.ours),
            [(sizes.get(name) or 0) / 2**20 or None for sizes in largest.values()],
            [None] * len(largest),
        )
        for name in names
    ]
    labels = ["\n".join(key).removesuffix("\nepoch") for key in largest]
    return [Bars("memory above rest, largest case", "MiB", labels, mib)]


def _widths(found: Reproduction) -> Iterator[Panel]:
    """Speedup over each baseline against width, median over graphs, orders and heads; one panel per baseline."""
    from gnnbench.report.plots import Line, Panel

    curves: dict[str, dict[str, dict[int, list[float]]]] = {}
    for one in found.measurements:
        for baseline, ratio in one.speedup.items():
            if ratio and one.implementation == found.paper.ours != baseline and one.phase != "epoch":
                of_op = curves.setdefault(baseline, {}).setdefault(f"{one.op} {one.phase}", {})
                of_op.setdefault(one.width, []).append(ratio.ratio)
    for baseline, of_baseline in curves.items():
        lines = []
        for op, widths in of_baseline.items():
            points = [(float(width), median(ratios)) for width, ratios in widths.items()]
            best = max(points, key=lambda point: point[1])[0] if baseline == "fallback" else None
            lines.append(Line(op, points, best))
        yield Panel(f"ours vs {_named(baseline, found.paper.ours)}", "width", "times faster", lines)
