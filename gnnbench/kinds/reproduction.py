"""Reproductions as tables, as pictures and on a page: every claim of a paper beside our measurement of it."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Literal

from gnnbench import papers, units
from gnnbench.kinds import ResultKind
from gnnbench.kinds.run import machine
from gnnbench.papers._records import Claim, Estimate, Finding, Measurement
from gnnbench.report.page import Grid, Section, section_of
from gnnbench.report.plots import Bars, Chart, Line, Panel, Picture, Series, series_of
from gnnbench.report.tables import NOTHING, Cell, Cells, Table, ended, ratio_cell
from gnnbench.results import files
from gnnbench.results.schema import Ratio
from gnnbench.stats import Interval

MEANINGS = {  # of verdicts
    ("exceeded", "reproduced", "not reached"): (
        "Exceeded: even the low end, or the median or mean itself, is above the published value; reproduced: the "
        "high end, or the median or mean, reaches 90% of it"
    ),
    ("not comparable",): "Not comparable: published on a GPU and measured on a CPU; the ratio is no verdict",
    ("equal", "different"): "Equal, different: the width that gains most, beside the published one",
}
KINDS = {"training": "Epochs", "ops": "Single ops", "tuning": "Gain by tuning over widths"}
LETTERS = 18  # of a line below a bar
CAPTIONS = {
    "speedups": "Logarithmic. A whisker is the range of what was published, or measured.",
    "memory": "Logarithmic, above what was held before.",
    "sets": "Logarithmic, with 95% intervals.",
    "widths": "The median of all graphs that were measured at more than one width.",
    "batches": "The median of all graphs that were measured at more than one batch size.",
    "epochs": "Medians of the phases of an epoch.",
}


class Reproduction(ResultKind, papers.Reproduction):
    """A paper's claims; a line of its frame is a measurement."""

    mark = "findings"
    file = files.REPRODUCTION
    frame = "measurements"


KIND = Reproduction


def tables(reproduction: papers.Reproduction) -> list[Table]:
    """The measurements of each kind of cell, then the claims."""
    kind = {cell.key: cell.definition["kind"] for cell in reproduction.cells}
    by_kind: dict[str, list[Measurement]] = {name: [] for name in KINDS}
    for one in reproduction.measurements:
        by_kind[kind[one.cell]].append(one)
    ours = reproduction.paper.ours
    return [*(_measured(KINDS[name], each, ours) for name, each in by_kind.items() if each), claims(reproduction)]


def title(reproduction: papers.Reproduction) -> str:
    """Paper and scale."""
    return f"{reproduction.paper.title}: scale {reproduction.scale}"


def claims(reproduction: papers.Reproduction) -> Table:
    """One line per measured quantity with all that was published of it; protocols, machines and reasons below."""
    rows = map(_claimed, shared(reproduction.findings))
    return Table.of(rows, title=title(reproduction), notes=[*_notes(reproduction)], prose=(0, 5))


def progress(record: papers.Reproduction, cell: str, step: str) -> tuple[str, Table]:
    """The claims as far as they are known, and the cell that runs now."""
    done = sum(each.outcome is not None for each in record.cells)
    line = f"{cell} ({done + 1} of {len(record.cells)})" + (f", {step}" if step else "")
    return f"{title(record)}\n{line}", claims(record)


def value(claim: Claim, number: float) -> str:
    """A number in the unit of a claim."""
    return units.ratio(number) if claim.unit == "x" else f"{number:g} {claim.unit}"


def shared(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings in groups whose claims are compared with the same measurement."""
    groups: dict[Any, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.claim.measured, []).append(finding)
    return list(groups.values())


def _claimed(same: Sequence[Finding]) -> Cells:
    first = same[0]
    known = [one.corrected.ratio for one in same if one.corrected]
    ratios = [units.ratio(ratio) for ratio in known if ratio is not None]
    return {
        "claim": Cell(first.claim.name, f"{first.claim.over}, vs {first.claim.baseline}"),
        "published": "\n".join(f"{value(one.claim, one.claim.value)} {one.claim.kind}" for one in same),
        "ours, paper's\nprotocol": _estimate(first.claim, first.published),
        "ours, corrected\nprotocol": _estimate(first.claim, first.corrected),
        "ours over\npublished": "\n".join(ratios) if len(ratios) == len(same) else NOTHING,
        "verdict": "\n".join(one.verdict for one in same),
    }


def _estimate(claim: Claim, estimate: Estimate | None) -> Cell:
    if estimate is None:
        return NOTHING
    ends = ""
    if estimate.low is not None and estimate.high is not None and estimate.low < estimate.high:
        ends = units.ratio(estimate.low, estimate.high)
    return Cell(value(claim, estimate.value), ends)


def _notes(reproduction: papers.Reproduction) -> Iterator[str]:
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


def _measured(title: str, measurements: Sequence[Measurement], backend: str) -> Table:
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
        peers = {name: _peer(case.get(name), speedups.get(name)) for name in others}
        rows.append(
            {
                "case": Cell(_case(ours), ours.device),
                "ours": _time(case.get(backend)),
                **{f"{named(name, backend)},\nours vs it": cell for name, cell in peers.items()},
                "memory\nabove rest": _more_memory(case, backend),
                "prepare,\npaid in": _preparation(ours),
            }
        )
    kept = {heading for row in rows for heading, cell in row.items() if cell != NOTHING}
    rows = [{heading: cell for heading, cell in row.items() if heading in kept} for row in rows]
    reasons = (f"{named(one.implementation, backend)}: {one.reason}" for one in measurements if one.reason)
    return Table.of(rows, title=title, notes=[*dict.fromkeys(reasons)])


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
    return Cell(_time(measurement).text, units.ratio(speedup.ratio)) if measurement else ratio_cell(speedup)


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


def section(record: papers.Reproduction) -> Section:
    """Tell what of a paper's claims can be measured here, and what was measured."""
    *measured, judgements = tables(record)
    verdicts = Counter(finding.verdict for finding in record.findings)
    wrong = {each.implementation for each in record.measurements if each.status == "wrong"}
    words = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    judged = f"Of {units.counted(len(record.findings), 'claim')}: {words}." if words else "No claim was judged."
    return section_of(
        record,
        [judgements],
        ["reproduce", record.paper.name, "--scale", record.scale],
        kind="Reproduction",
        question="What of a paper's claims can be measured here, under its protocol and a corrected one?",
        verdict=[
            *(f"{name} computes something else, and gets no speedup there." for name in sorted(wrong)),
            judged,
        ],
        tone="bad" if record.exit_code == 3 else "plain",
        pictures=[
            Picture(name.capitalize(), CAPTIONS.get(name, ""), panel)
            for name, panels in pictures(record).items()
            for panel in panels
        ],
        details=[
            Grid(replace(each, title=f"{each.title}: {units.counted(len(each.rows), 'case')}"))
            for each in measured
        ],
    )


def pictures(reproduction: papers.Reproduction) -> dict[str, Sequence[Chart]]:
    """By the name of its file; only those that there are measurements for."""
    drawn: dict[str, Sequence[Chart]] = {
        "speedups": _beside_claims(reproduction, "time"),
        "memory": [*_beside_claims(reproduction, "memory"), *_memory(reproduction)],
        "sets": [*_sets(reproduction)],
        "widths": [*_curves(reproduction, "width")],
        "batches": [*_curves(reproduction, "batch")],
        "epochs": [*_epochs(reproduction)],
    }
    return {name: panels for name, panels in drawn.items() if panels}


def _beside_claims(reproduction: papers.Reproduction, quantity: str) -> list[Bars]:
    shown = [
        same for same in shared(reproduction.findings) if same[0].claim.quantity == quantity and same[0].corrected
    ]
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
                Series("ours, paper's protocol", [one and one.value for one in published]),
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
    return f"{claim.op or textwrap.fill(claim.name, LETTERS)}{phase}\n{claim.over}\nvs {claim.baseline}\n({kinds})"


def _memory(reproduction: papers.Reproduction) -> list[Bars]:
    """Memory of every implementation at the largest width and number of heads, on the first graph as it came."""
    groups: dict[str, list[Measurement]] = {}
    for one in reproduction.measurements:
        if one.memory_bytes and one.order == "none" and one.graph == reproduction.measurements[0].graph:
            groups.setdefault(f"{one.op}\n{one.phase}".removesuffix("\nepoch"), []).append(one)
    largest = [
        {
            one.implementation: one.memory_bytes
            for one in group
            if (one.width, one.heads) == max((other.width, other.heads) for other in group)
        }
        for group in groups.values()
    ]
    names = dict.fromkeys(name for sizes in largest for name in sizes)
    if len(names) < 2:
        return []
    series = [
        Series(
            named(name, reproduction.paper.ours),
            [(sizes.get(name) or 0) / units.SIZES["MiB"] or None for sizes in largest],
        )
        for name in names
    ]
    return [Bars("memory above rest, largest case", "MiB", [*groups], series)]


def _speedups(reproduction: papers.Reproduction) -> Iterator[tuple[Measurement, str, Ratio]]:
    """Every op of ours, over every baseline."""
    ops = {cell.key for cell in reproduction.cells if cell.definition["kind"] != "training"}
    for measurement in reproduction.measurements:
        if measurement.implementation == reproduction.paper.ours and measurement.cell in ops:
            for baseline, ratio in measurement.speedup.items():
                if ratio and baseline != reproduction.paper.ours:
                    yield measurement, baseline, ratio


def _curves(reproduction: papers.Reproduction, x: Literal["width", "batch"]) -> Iterator[Panel]:
    """Speedup over each baseline against `x`, median over all that was measured at more than one `x`."""
    other = "batch" if x == "width" else "width"
    dataset = {cell.key: json.dumps(cell.definition["dataset"]) for cell in reproduction.cells}
    cases: dict[tuple[str, str], dict[Any, dict[int, float]]] = {}
    for measurement, baseline, ratio in _speedups(reproduction):
        case = dataset[measurement.cell], measurement.heads, getattr(measurement, other)
        of_op = cases.setdefault((baseline, f"{measurement.op} {measurement.phase}"), {})
        of_op.setdefault(case, {})[getattr(measurement, x)] = ratio.ratio
    lines: dict[str, list[Line]] = {}
    for (baseline, op), of_case in cases.items():
        swept = [curve for curve in of_case.values() if len(curve) > 1]
        if swept:
            places = sorted({place for curve in swept for place in curve})
            points = [
                (float(place), median(curve[place] for curve in swept if place in curve)) for place in places
            ]
            best = [(max(points, key=lambda point: point[1])[0], "")] if baseline == "fallback" else []
            lines.setdefault(baseline, []).append(Line(op, points, best))
    label = "width" if x == "width" else "graphs in a batch"
    for baseline, of_baseline in lines.items():
        yield Panel(f"ours vs {named(baseline, reproduction.paper.ours)}", label, "times faster", of_baseline)


def _sets(reproduction: papers.Reproduction) -> Iterator[Bars]:
    """Speedup over each baseline on batches of every set, at the size that most sets were measured at."""
    batched = [each for each in _speedups(reproduction) if each[0].batch]
    if not batched:
        return
    sizes = {(one.graph, one.width, one.batch) for one, _, _ in batched}
    (width, batch), _ = Counter((width, batch) for _, width, batch in sorted(sizes)).most_common(1)[0]
    ratios: dict[str, dict[str, dict[str, Interval]]] = {}
    for one, baseline, ratio in batched:
        if (one.width, one.batch) == (width, batch):
            of_op = ratios.setdefault(baseline, {}).setdefault(f"{one.op} {one.phase}", {})
            of_op[one.graph.partition(",")[0]] = Interval(ratio.ratio, ratio.low, ratio.high)
    for baseline, of_baseline in ratios.items():
        graphs = list(dict.fromkeys(graph for of_op in of_baseline.values() for graph in of_op))
        series = [series_of(op, of_op, graphs) for op, of_op in of_baseline.items()]
        title = f"ours vs {named(baseline, reproduction.paper.ours)}: width {width}, {batch:,} graphs"
        yield Bars(title, "times faster", [textwrap.fill(graph, LETTERS) for graph in graphs], series)


def _epochs(reproduction: papers.Reproduction) -> Iterator[Bars]:
    """Draw what an epoch of every model and implementation is made of; one panel per graph."""
    graphs: dict[str, list[Measurement]] = {}
    for one in reproduction.measurements:
        if one.parts_s:
            graphs.setdefault(one.graph, []).append(one)
    for graph, trained in graphs.items():
        parts = dict.fromkeys(part for one in trained for part in one.parts_s)
        series = [Series(part, [one.parts_s.get(part) for one in trained]) for part in parts]
        groups = [f"{one.op}\n{named(one.implementation, reproduction.paper.ours)}" for one in trained]
        yield Bars(f"epochs on {graph}", "seconds", groups, series, stacked=True)
