"""Benchmarks on a page: of ops, of layers and of batches, and what those of a whole device share with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gnnbench import registry, units
from gnnbench.report.page.pictures import of_panel
from gnnbench.report.page.section import Section, Tone, section_of

if TYPE_CHECKING:
    from gnnbench.benchmarks.records import Benchmark
    from gnnbench.report.tables import Table

INTERVALS = "Times are medians over interleaved rounds; ranges are 95% bootstrap intervals"
OF_GRAPH = "GRAPH stands for the dataset, whose name on the command line the result does not keep"
SHOWN = {  # by op, the module that makes its table, its kind and its question; of single ops the last
    "collate": ("batches", "Batches", "How long does it take to put graphs together into a batch, per graph?"),
    "sample": ("batches", "Samples", "How long does it take to draw a neighbourhood and to gather its features?"),
    "negatives": ("batches", "Negatives", "How long does it take to draw pairs of nodes that are no edges?"),
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
        words += [f"--{option}", text] if (text := listed(values)) else []
    words += ["--backward"] * any(getattr(row, "direction", "") == "backward" for row in ours)
    words += ["--weighted"] * getattr(record, "weighted", False)
    panels = report.panels(record) if hasattr(report, "panels") else ()
    caption = "Higher is faster; a point is the median."
    drawn = [of_panel(panel, f"{record.op} by {panel.x_label}", caption) for panel in panels if panel.lines]
    question = question.format(**vars(record))
    return measured(record, ours, kind, question, report.table(record), words, pictures=drawn)


def measured(
    record: Benchmark,
    ours: Sequence[Any],
    kind: str,
    question: str,
    table: Table,
    words: Sequence[str],
    **others: Any,
) -> Section:
    """A benchmark, of which rows in `ours` are of its backend; `gnnbench` with `words` measures it again."""
    tone, verdict = _verdict(ours, record.backend, record.rows)
    fields = {"verdict": verdict, "tone": tone, "conditions": [INTERVALS, *table.notes], "remark": OF_GRAPH}
    return section_of(record, [table], words, kind=kind, question=question, **fields | others)


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


def listed(values: Iterable[Any]) -> str:
    """Values once each, as an option takes them."""
    return ",".join(dict.fromkeys(map(str, values)))
