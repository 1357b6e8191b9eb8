"""Reproductions as tables, as pictures and on a page: every claim of a paper beside our measurement of it."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from statistics import median
from typing import Literal

from gnnbench import papers, units
from gnnbench.kinds import ResultKind
from gnnbench.kinds.run import machine
from gnnbench.papers._records import Claim, Estimate, Finding, Measurement
from gnnbench.report.page import Grid, Section, section_of
from gnnbench.report.plots import Bars, Chart, Line, Panel, Picture, Series
from gnnbench.report.tables import NOTHING, Cell, Cells, Table, ended, prepare_cell, ratio_cell
from gnnbench.results import files
from gnnbench.results.schema import Ratio
from gnnbench.stats import Interval, grouped

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
MEASURED = attrgetter("claim.measured")  # what findings share that are compared with the same measurement
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


def tables(record: papers.Reproduction) -> list[Table]:
    """The measurements of each kind of cell, then the claims."""
    kind = {cell.key: cell.definition["kind"] for cell in record.cells}
    by_kind, ours = grouped(record.measurements, lambda one: kind[one.cell]), record.paper.ours
    measured = [_measured(title, by_kind[name], ours) for name, title in KINDS.items() if name in by_kind]
    return [*measured, claims(record)]


def title(record: papers.Reproduction) -> str:
    """Paper and scale."""
    return f"{record.paper.title}: scale {record.scale}"


def claims(record: papers.Reproduction) -> Table:
    """One line per measured quantity with all that was published of it; protocols, machines and reasons below."""
    rows = map(_claimed, grouped(record.findings, MEASURED).values())
    return Table.of(rows, title=title(record), notes=[*_notes(record)], prose=(0, 5))


def progress(record: papers.Reproduction, cell: str, step: str) -> tuple[str, Table]:
    """The claims as far as they are known, and the cell that runs now."""
    done = sum(each.outcome is not None for each in record.cells)
    line = f"{cell} ({done + 1} of {len(record.cells)})" + (f", {step}" if step else "")
    return f"{title(record)}\n{line}", claims(record)


def _value(claim: Claim, number: float) -> str:
    return units.ratio(number) if claim.unit == "x" else f"{number:g} {claim.unit}"


def _claimed(same: Sequence[Finding]) -> Cells:
    first = same[0]
    known = [one.corrected.ratio for one in same if one.corrected]
    ratios = [units.ratio(ratio) for ratio in known if ratio is not None]
    return {
        "claim": Cell(first.claim.name, f"{first.claim.over}, vs {first.claim.baseline}"),
        "published": "\n".join(f"{_value(one.claim, one.claim.value)} {one.claim.kind}" for one in same),
        "ours, paper's\nprotocol": _estimate(first.claim, first.published),
        "ours, corrected\nprotocol": _estimate(first.claim, first.corrected),
        "ours over\npublished": "\n".join(ratios) if len(ratios) == len(same) else NOTHING,
        "verdict": "\n".join(one.verdict for one in same),
    }


def _estimate(claim: Claim, estimate: Estimate | None) -> Cell:
    if estimate is None:
        return NOTHING
    low, high = estimate.low, estimate.high
    ends = "" if low is None or high is None else units.interval(units.ratio, low, high)
    return Cell(_value(claim, estimate.value), ends)


def _notes(record: papers.Reproduction) -> Iterator[str]:
    paper = record.paper
    yield f"Paper's protocol: {paper.published}"
    yield f"Corrected protocol: {paper.corrected}"
    yield (
        "Ranges: 95% bootstrap interval of the case with the largest ratio; for medians and means, the lowest and "
        "highest of all cases"
    )
    verdicts = {finding.verdict for finding in record.findings}
    yield from (meaning for names, meaning in MEANINGS.items() if verdicts & {*names})
    yield from paper.notes
    unmeasured = (one for one in record.findings if one.reason)
    yield from dict.fromkeys(f"{one.claim.name}: not run because {one.reason}" for one in unmeasured)
    for cell in record.cells:
        if cell.outcome and cell.outcome.status != "ok":
            yield f"Cell {cell.key}: {ended(cell.outcome.status)}: {cell.outcome.reason}"
    if stand_ins := dict.fromkeys(one.graph for one in record.measurements if "synthetic" in one.graph):
        yield f"Synthetic stand-ins, not the paper's data: {'; '.join(stand_ins)}"
    hardware = dict.fromkeys(finding.claim.hardware for finding in record.findings if finding.claim.hardware)
    yield f"Published on: {', '.join([*hardware, paper.machine])}"
    yield from machine(record.environment)
    sources = dict.fromkeys(f"{finding.claim.kind}: {finding.claim.source}" for finding in record.findings)
    yield f"Sources: {'; '.join(sources)}"


def _measured(title: str, measurements: Sequence[Measurement], backend: str) -> Table:
    """One line per case; every implementation with its time, and below it the speedup of ours over it."""
    names = dict.fromkeys(name for one in measurements for name in (one.implementation, *one.speedup))
    rows = []
    for same in grouped(measurements, attrgetter("case")).values():
        case = {one.implementation: one for one in same}
        ours, first = case.get(backend), case.get(backend, same[0])
        speedups = ours.speedup if ours else {}
        peers = {name: _peer(case.get(name), speedups.get(name)) for name in names if name != backend}
        rows.append(
            {
                "case": Cell(_case(first), first.device),
                "ours": _time(ours),
                **{f"{_named(name, backend)},\nours vs it": cell for name, cell in peers.items()},
                "memory\nabove rest": _more_memory(case, backend),
                "prepare,\npaid in": prepare_cell(first.prepare_s, first.break_even_epochs),
            }
        )
    kept = {heading for row in rows for heading, cell in row.items() if cell != NOTHING}
    rows = [{heading: cell for heading, cell in row.items() if heading in kept} for row in rows]
    reasons = (f"{_named(one.implementation, backend)}: {one.reason}" for one in measurements if one.reason)
    return Table.of(rows, title=title, notes=[*dict.fromkeys(reasons)])


def _named(implementation: str, backend: str) -> str:
    return implementation.replace(backend, "ours")


def _case(one: Measurement) -> str:
    what = one.op
    if one.phase != "epoch":
        what += f" {one.phase}, width {one.width}" + f", {one.heads} heads" * (one.heads > 1)
    return f"{what} on {one.graph}" + f" by {one.order}" * (one.order != "none")


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


def section(record: papers.Reproduction) -> Section:
    """Tell what of a paper's claims can be measured here, and what was measured."""
    *measured, judgements = tables(record)
    verdicts = Counter(finding.verdict for finding in record.findings)
    wrong = sorted({each.implementation for each in record.measurements if each.status == "wrong"})
    words = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    judged = f"Of {units.counted(len(record.findings), 'claim')}: {words}." if words else "No claim was judged."
    counted = (f"{each.title}: {units.counted(len(each.rows), 'case')}" for each in measured)
    return section_of(
        record,
        [judgements],
        ["reproduce", record.paper.name, "--scale", record.scale],
        question="What of a paper's claims can be measured here, under its protocol and a corrected one?",
        verdict=[*(f"{name} computes something else, and gets no speedup there." for name in wrong), judged],
        tone="bad" if record.exit_code == 3 else "plain",
        pictures=[
            Picture(name.capitalize(), CAPTIONS[name], panel)
            for name, panels in pictures(record).items()
            for panel in panels
        ],
        details=[Grid(replace(each, title=title)) for each, title in zip(measured, counted, strict=True)],
    )


def pictures(record: papers.Reproduction) -> dict[str, Sequence[Chart]]:
    """By the name of its file; only those that there are measurements for."""
    drawn: dict[str, Sequence[Chart]] = {
        "speedups": [*_beside_claims(record, "time")],
        "memory": [*_beside_claims(record, "memory"), *_memory(record)],
        "sets": [*_sets(record)],
        "widths": [*_curves(record, "width")],
        "batches": [*_curves(record, "batch")],
        "epochs": [*_epochs(record)],
    }
    return {name: panels for name, panels in drawn.items() if panels}


def _beside_claims(record: papers.Reproduction, quantity: str) -> Iterator[Bars]:
    groups = grouped((one for one in record.findings if one.claim.quantity == quantity), MEASURED).values()
    if not (shown := [same for same in groups if same[0].corrected]):
        return
    values = [[one.claim.value for one in same] for same in shown]
    published, corrected = ([getattr(same[0], name) for same in shown] for name in ("published", "corrected"))
    apart = any(one.verdict == "not comparable" for same in shown for one in same)
    yield Bars(
        f"{quantity}: published and ours" + " (GPU and CPU: not comparable)" * apart,
        "times faster" if quantity == "time" else "times less memory",
        [_wrapped(same) for same in shown],
        [
            Series(
                "published; whisker: the same claim elsewhere",
                [Interval(each[0], min(each), max(each)) for each in values],
            ),
            Series("ours, paper's protocol", [one and one.value for one in published]),
            Series(
                "ours, corrected protocol, with range",
                [Interval(one.value, one.low or one.value, one.high or one.value) for one in corrected],
            ),
        ],
    )


def _wrapped(same: Sequence[Finding]) -> str:
    claim = same[0].claim
    phase = "" if claim.phase == "epoch" else f"\n{claim.phase}"
    kinds = ",\n".join(dict.fromkeys(one.claim.kind for one in same))
    return f"{claim.op or textwrap.fill(claim.name, LETTERS)}{phase}\n{claim.over}\nvs {claim.baseline}\n({kinds})"


def _memory(record: papers.Reproduction) -> Iterator[Bars]:
    """Memory of every implementation at the largest width and number of heads, on the first graph as it came."""
    first = record.measurements[0].graph if record.measurements else ""
    shown = (one for one in record.measurements if one.memory_bytes and (one.order, one.graph) == ("none", first))
    groups = grouped(shown, lambda one: f"{one.op}\n{one.phase}".removesuffix("\nepoch"))
    largest = []
    for group in groups.values():
        size = max((one.width, one.heads) for one in group)
        largest.append({one.implementation: one.memory_bytes for one in group if (one.width, one.heads) == size})
    names, mib = dict.fromkeys(name for sizes in largest for name in sizes), units.SIZES["MiB"]
    if len(names) > 1:
        series = [
            Series(_named(name, record.paper.ours), [(sizes.get(name) or 0) / mib or None for sizes in largest])
            for name in names
        ]
        yield Bars("memory above rest, largest case", "MiB", [*groups], series)


def _gains(record: papers.Reproduction) -> dict[str, dict[str, list[tuple[Measurement, Ratio]]]]:
    """By baseline and op, the ratios of all that was measured of ours."""
    ours, gains = record.paper.ours, dict[str, dict[str, list[tuple[Measurement, Ratio]]]]()
    ops = {cell.key for cell in record.cells if cell.definition["kind"] != "training"}
    for one in record.measurements:
        for baseline, ratio in one.speedup.items() if one.implementation == ours and one.cell in ops else ():
            if ratio and baseline != ours:
                gains.setdefault(baseline, {}).setdefault(f"{one.op} {one.phase}", []).append((one, ratio))
    return gains


def _curves(record: papers.Reproduction, x: Literal["width", "batch"]) -> Iterator[Panel]:
    """Speedup over each baseline against `x`, median over all that was measured at more than one `x`."""
    other, label = ("batch", "width") if x == "width" else ("width", "graphs in a batch")
    dataset = {cell.key: json.dumps(cell.definition["dataset"]) for cell in record.cells}
    for baseline, ops in _gains(record).items():
        lines = []
        for op, found in ops.items():
            cases = grouped(found, lambda each: (dataset[each[0].cell], each[0].heads, getattr(each[0], other)))
            curves = [{getattr(one, x): ratio.ratio for one, ratio in case} for case in cases.values()]
            swept = [curve for curve in curves if len(curve) > 1]
            places = sorted({place for curve in swept for place in curve})
            medians = (median(curve[place] for curve in swept if place in curve) for place in places)
            if points := [*zip(map(float, places), medians, strict=True)]:
                best = [(max(points, key=itemgetter(1))[0], "")] if baseline == "fallback" else []
                lines.append(Line(op, points, best))
        if lines:
            yield Panel(f"ours vs {_named(baseline, record.paper.ours)}", label, "times faster", lines)


def _sets(record: papers.Reproduction) -> Iterator[Bars]:
    """Speedup over each baseline on batches of every set, at the size that most sets were measured at."""
    gains = _gains(record)
    found = (one for ops in gains.values() for each in ops.values() for one, _ in each if one.batch)
    if not (sizes := sorted({(one.graph, one.width, one.batch) for one in found})):
        return
    (width, batch), _ = Counter((width, batch) for _, width, batch in sizes).most_common(1)[0]
    for baseline, ops in gains.items():
        ratios = {
            op: {
                one.graph.partition(",")[0]: Interval(ratio.ratio, ratio.low, ratio.high)
                for one, ratio in of_op
                if (one.width, one.batch) == (width, batch)
            }
            for op, of_op in ops.items()
        }
        graphs = list(dict.fromkeys(graph for of_op in ratios.values() for graph in of_op))
        series = [Series(op, [*map(of_op.get, graphs)]) for op, of_op in ratios.items() if of_op]
        title = f"ours vs {_named(baseline, record.paper.ours)}: width {width}, {batch:,} graphs"
        if series:
            yield Bars(title, "times faster", [textwrap.fill(graph, LETTERS) for graph in graphs], series)


def _epochs(record: papers.Reproduction) -> Iterator[Bars]:
    """Draw what an epoch of every model and implementation is made of; one panel per graph."""
    known = (one for one in record.measurements if one.parts_s)
    for graph, trained in grouped(known, attrgetter("graph")).items():
        phases = dict.fromkeys(phase for one in trained for phase in one.parts_s)
        series = [Series(phase, [one.parts_s.get(phase) for one in trained]) for phase in phases]
        groups = [f"{one.op}\n{_named(one.implementation, record.paper.ours)}" for one in trained]
        yield Bars(f"epochs on {graph}", "seconds", groups, series, stacked=True)
