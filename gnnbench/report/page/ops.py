"""Benchmarks of ops, of batches and of a whole device, and tuned choices, on a page."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gnnbench import registry, units
from gnnbench.report import suite as suite_report
from gnnbench.report import tune as tune_report
from gnnbench.report.page.pictures import of_panel
from gnnbench.report.page.section import Grid, Section, Tone

if TYPE_CHECKING:
    from gnnbench.benchmarks.records import Benchmark, Suite
    from gnnbench.report.tables import Table
    from gnnbench.tuning.store import Tuned

OF_GRAPH = "GRAPH stands for the dataset, whose name on the command line the result does not keep"
SHOWN = {  # by op, the module that makes its table, its kind and its question; of single ops the last
    "collate": ("collate", "Batches", "How long does it take to put graphs together into a batch, per graph?"),
    "sample": ("sample", "Samples", "How long does it take to draw a neighbourhood and to gather its features?"),
    "negatives": ("negatives", "Negatives", "How long does it take to draw pairs of nodes that are no edges?"),
    "conv": (
        "layers",
        "Layers",
        "Are layers on {backend} right, and how fast and small beside PyG's own code?",
    ),
    "": ("bench", "Op", "Is {op} on {backend} right, and how fast is it beside its peers?"),
}
OF_ROWS = {"widths": "width", "heads": "heads", "batches": "batch_size"}  # options and what rows call them


def bench(record: Any) -> Section:
    """A benchmark of an op, of layers or of batches."""
    ours = [row for row in record.rows if row.implementation == record.backend]
    module, kind, question = SHOWN.get(record.op, SHOWN[""])
    report = registry.find("report", module)
    shapes = ["x".join(map(str, row.shape)) for row in ours if getattr(row, "shape", ())]
    options: dict[str, Iterable[Any]] = {
        "conv": getattr(record, "layers", ()),
        "shapes": shapes,
        "graph": () if shapes else ["GRAPH"],
        **{option: [getattr(row, name, "") for row in ours if not shapes] for option, name in OF_ROWS.items()},
        "fanouts": getattr(record, "fanouts", ()),
        "backend": [record.backend] * (record.op not in ("sample", "negatives")),
        "against": [peer for peer in getattr(record, "peers", ()) if peer != record.backend],
        "threads": [getattr(record, "threads", "")],
    }
    words = ["bench", record.op]
    for option, values in options.items():
        words += [f"--{option}", text] if (text := _list(values)) else []
    words += ["--backward"] * any(getattr(row, "direction", "") == "backward" for row in ours)
    words += ["--weighted"] * getattr(record, "weighted", False)
    made = _section(record, kind, question.format(**vars(record)), report.table(record), ours, words)
    panels = report.panels(record) if hasattr(report, "panels") else ()
    caption = "Higher is faster; a point is the median."
    drawn = [of_panel(panel, f"{record.op} by {panel.x_label}", caption) for panel in panels if panel.lines]
    return replace(made, pictures=drawn)


def suite(record: Suite) -> Section:
    """A suite of ops and models on one device."""
    ours = [row for row in record.rows if row.backend == record.backend]
    question = f"Is everything on {record.backend} right, and how fast is it beside its fastest peers?"
    words = ["suite", record.suite, "--scale", record.scale]
    made = _section(record, "Suite", question, suite_report.table(record), ours, words)
    by_status = Grid(replace(suite_report.counts(record), title="Rows by status"))
    made = replace(made, grids=[*made.grids, by_status], remark="")
    if record.caveat:
        verdict = [f"These times mean nothing: {record.caveat}.", *made.verdict]
        made = replace(made, tone="bad", verdict=verdict)
    return made


def _section(
    record: Benchmark, kind: str, question: str, table: Table, ours: Sequence[Any], words: list[str]
) -> Section:
    """A benchmark that `gnnbench` with `words` measures again."""
    tone, verdict = _verdict(ours, record.backend, record.rows)
    return Section(
        kind=kind,
        title=table.title,
        question=question,
        verdict=verdict,
        tone=tone,
        grids=[Grid(replace(table, notes=()))],
        conditions=[INTERVALS, *table.notes],
        environment=record.environment,
        command=shlex.join(["gnnbench", *words]),
        remark=OF_GRAPH,
    )


def tuning(record: Tuned) -> Section:
    """Tuned choices of one graph."""
    changed = [choice for choice in record.choices if choice.choice != choice.default]
    best = max(record.choices, key=lambda choice: choice.gain.ratio, default=None)
    verdict = [
        f"{units.counted(len(changed), 'choice')} of {len(record.choices)} "
        "differ from the heuristic's; the others are what it takes anyway."
    ]
    if best and best in changed:
        interval = units.interval(units.ratio, best.gain.low, best.gain.high, ", 95% interval {}")
        gain = f"{units.ratio(best.gain.ratio)} ({best.op}, width {best.width}{interval})"
        verdict.append(f"The largest gain over the heuristic is {gain}.")
    table = tune_report.table(record)
    requests = [choice for choice in record.choices if choice.adjacency == "graph"]
    words = ["tune", "GRAPH", "--ops", _list(choice.op for choice in requests)]
    words += ["--widths", _list(choice.width for choice in requests)]
    words += ["--heads", _list(choice.heads for choice in requests), "--backend", record.kernels]
    return Section(
        kind="Tuning",
        title=tune_report.title(record),
        question="Which choices of the kernels are fastest on this graph?",
        verdict=verdict,
        grids=[Grid(replace(table, notes=()))],
        pictures=[
            of_panel(panel, "Speedup by width", TUNED) for panel in tune_report.panels(record) if panel.lines
        ],
        conditions=[INTERVALS, *table.notes],
        environment=record.machine,
        command=shlex.join(["gnnbench", *words]),
        remark=OF_GRAPH,
    )


INTERVALS = "Times are medians over interleaved rounds; ranges are 95% bootstrap intervals"
TUNED = "Times faster than the fallback, tuned and by the heuristic; dotted: the width of the largest gain."


def _verdict(ours: Sequence[Any], backend: str, rows: Sequence[Any]) -> tuple[Tone, list[str]]:
    """How often ours is beyond doubt faster and slower than each peer; no figure is drawn from several."""
    wrong = [row for row in rows if row.status == "wrong"]
    sentences = [
        f"{name} is wrong in {units.counted(count, 'case')} and gets no time there."
        for name, count in Counter(row.implementation for row in wrong).items()
    ]
    bad = any(row.backend == backend for row in wrong)
    beyond: Counter[str] = Counter()
    for peer in dict.fromkeys(peer for row in ours for peer in row.ratio):
        gains = [ratio for row in ours if (ratio := row.ratio.get(peer)) and peer != row.implementation]
        if not gains:
            continue
        faster, slower = sum(gain.low > 1 for gain in gains), sum(gain.high < 1 for gain in gains)
        beyond.update(faster=faster, slower=slower, cases=len(gains))
        sentences.append(
            f"{backend} is faster than {peer} in {faster} of {units.counted(len(gains), 'case')}"
            + (f", slower in {slower}." if slower else ".")
        )
    if not beyond:
        return "bad" if bad else "plain", sentences or ["Nothing was timed beside it."]
    good: Tone = "good" if beyond["faster"] == beyond["cases"] else "plain"
    return "bad" if bad else good, sentences


def _list(values: Any) -> str:
    return ",".join(dict.fromkeys(map(str, values)))
