"""A reproduction as pictures and on a page: claims beside our measurements, and what these depend on."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from gnnbench import units
from gnnbench.report import reproduce
from gnnbench.report.page.pictures import of_panel
from gnnbench.report.page.section import Grid, Section, section_of
from gnnbench.report.plots import Bars, Line, Panel, Series
from gnnbench.report.reproduce import named, shared

if TYPE_CHECKING:
    from gnnbench.papers import Reproduction
    from gnnbench.papers._records import Finding, Measurement
    from gnnbench.results.schema import Ratio

Picture = Sequence[Panel | Bars]
LETTERS = 18  # of a line below a bar
CAPTIONS = {
    "speedups": "Logarithmic. A whisker is the range of what was published, or measured.",
    "memory": "Logarithmic, above what was held before.",
    "sets": "Logarithmic, with 95% intervals.",
    "widths": "The median of all graphs that were measured at more than one width.",
    "batches": "The median of all graphs that were measured at more than one batch size.",
    "epochs": "Medians of the phases of an epoch.",
}


def section(record: Reproduction) -> Section:
    """Tell what of a paper's claims can be measured here, and what was measured."""
    *measured, claims = reproduce.tables(record)
    verdicts = Counter(finding.verdict for finding in record.findings)
    wrong = {each.implementation for each in record.measurements if each.status == "wrong"}
    words = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    judged = f"Of {units.counted(len(record.findings), 'claim')}: {words}." if words else "No claim was judged."
    return section_of(
        record,
        [claims],
        ["reproduce", record.paper.name, "--scale", record.scale],
        kind="Reproduction",
        question="What of a paper's claims can be measured here, under its protocol and a corrected one?",
        verdict=[
            *(f"{name} computes something else, and gets no speedup there." for name in sorted(wrong)),
            judged,
        ],
        tone="bad" if record.exit_code == 3 else "plain",
        pictures=[
            of_panel(panel, name.capitalize(), CAPTIONS.get(name, ""))
            for name, panels in pictures(record).items()
            for panel in panels
        ],
        details=[
            Grid(replace(each, title=f"{each.title}: {units.counted(len(each.rows), 'case')}"))
            for each in measured
        ],
    )


def pictures(reproduction: Reproduction) -> dict[str, Picture]:
    """By the name of its file; only those that there are measurements for."""
    drawn: dict[str, Picture] = {
        "speedups": _beside_claims(reproduction, "time"),
        "memory": [*_beside_claims(reproduction, "memory"), *_memory(reproduction)],
        "sets": [*_sets(reproduction)],
        "widths": [*_curves(reproduction, "width")],
        "batches": [*_curves(reproduction, "batch")],
        "epochs": [*_epochs(reproduction)],
    }
    return {name: panels for name, panels in drawn.items() if panels}


def _beside_claims(reproduction: Reproduction, quantity: str) -> list[Panel | Bars]:
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
    return f"{claim.op or textwrap.fill(claim.name, LETTERS)}{phase}\n{claim.over}\nvs {claim.baseline}\n({kinds})"


def _memory(reproduction: Reproduction) -> list[Panel | Bars]:
    """Memory of every implementation at the largest width and number of heads, on the first graph as it came."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for measurement in reproduction.measurements:
        if (
            measurement.memory_bytes
            and measurement.order == "none"
            and measurement.graph == reproduction.measurements[0].graph
        ):
            groups.setdefault((measurement.op, measurement.phase), []).append(measurement)
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
            named(name, reproduction.paper.ours),
            [(sizes.get(name) or 0) / 2**20 or None for sizes in largest.values()],
            [None] * len(largest),
        )
        for name in names
    ]
    labels = ["\n".join(key).removesuffix("\nepoch") for key in largest]
    return [Bars("memory above rest, largest case", "MiB", labels, mib)]


def _speedups(reproduction: Reproduction) -> Iterator[tuple[Measurement, str, Ratio]]:
    """Every op of ours, over every baseline."""
    ops = {cell.key for cell in reproduction.cells if cell.definition["kind"] != "training"}
    for measurement in reproduction.measurements:
        if measurement.implementation == reproduction.paper.ours and measurement.cell in ops:
            for baseline, ratio in measurement.speedup.items():
                if ratio and baseline != reproduction.paper.ours:
                    yield measurement, baseline, ratio


def _curves(reproduction: Reproduction, x: Literal["width", "batch"]) -> Iterator[Panel]:
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


def _sets(reproduction: Reproduction) -> Iterator[Bars]:
    """Speedup over each baseline on batches of every set, at the size that most sets were measured at."""
    batched = [each for each in _speedups(reproduction) if each[0].batch]
    if not batched:
        return
    sizes = {(one.graph, one.width, one.batch) for one, _, _ in batched}
    (width, batch), _ = Counter((width, batch) for _, width, batch in sorted(sizes)).most_common(1)[0]
    ratios: dict[str, dict[str, dict[str, Ratio]]] = {}
    for one, baseline, ratio in batched:
        if (one.width, one.batch) == (width, batch):
            of_op = ratios.setdefault(baseline, {}).setdefault(f"{one.op} {one.phase}", {})
            of_op[one.graph.partition(",")[0]] = ratio
    for baseline, of_baseline in ratios.items():
        graphs = list(dict.fromkeys(graph for of_op in of_baseline.values() for graph in of_op))
        series = [
            Series(
                op,
                [of_op[graph].ratio if graph in of_op else None for graph in graphs],
                [(of_op[graph].low, of_op[graph].high) if graph in of_op else None for graph in graphs],
            )
            for op, of_op in of_baseline.items()
        ]
        title = f"ours vs {named(baseline, reproduction.paper.ours)}: width {width}, {batch:,} graphs"
        yield Bars(title, "times faster", [textwrap.fill(graph, LETTERS) for graph in graphs], series)


def _epochs(reproduction: Reproduction) -> Iterator[Bars]:
    """Draw what an epoch of every model and implementation is made of; one panel per graph."""
    graphs: dict[str, list[Measurement]] = {}
    for one in reproduction.measurements:
        if one.parts_s:
            graphs.setdefault(one.graph, []).append(one)
    for graph, trained in graphs.items():
        parts = dict.fromkeys(part for one in trained for part in one.parts_s)
        series = [
            Series(part, [one.parts_s.get(part) for one in trained], [None] * len(trained)) for part in parts
        ]
        groups = [f"{one.op}\n{named(one.implementation, reproduction.paper.ours)}" for one in trained]
        yield Bars(f"epochs on {graph}", "seconds", groups, series, stacked=True)
