"""Choices that were tuned on a graph, as a table, as a speedup curve over widths and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.kinds import ResultKind, bench
from gnnbench.kinds.run import chosen, words_of
from gnnbench.report.page import Section, section_of
from gnnbench.report.plots import Line, Panel, Picture
from gnnbench.report.tables import Cell, Cells, Table, ratio_cell
from gnnbench.results.schema import ChoiceRecord
from gnnbench.stats import grouped
from gnnbench.tuning.store import Tuned

if TYPE_CHECKING:
    from gnnbench.tuning.search import Request

FALLBACK = "the row kernel as compiled for any processor, without prefetch"
GPU_FALLBACK = "plain PyTorch"
GAIN = attrgetter("speedup.ratio")
CAPTION = "Times faster than the fallback, tuned and by the heuristic; dotted: the width of the largest gain."


class Tuning(ResultKind, Tuned):
    """Tuned choices; a line of its frame is a choice."""

    mark = "fingerprint"
    frame = "choices"


def table(tuned: Tuned) -> Table:
    """One line per op and width."""
    best, same = [max(curve, key=GAIN) for curve in _curves(tuned)], Cell("1x", "is the heuristic's")
    rows: list[Cells] = [
        {
            "op, width": chosen(record) + " *" * (record in best),
            "time": units.seconds(record.time_s),
            "speedup vs\nfallback": ratio_cell(record.speedup),
            "speedup vs\nheuristic": same if record.choice == record.default else ratio_cell(record.gain),
            "choice": words_of(record.choice),
        }
        for record in tuned.choices
    ]
    notes = [
        "* the width of the largest speedup over the fallback",
        f"Fallback: {GPU_FALLBACK if 'gpu' in tuned.machine else FALLBACK}",
        f"Tuning took {units.seconds(tuned.tuning_s)}; `train` and `compare` use its choices from now on",
    ]
    return Table.of(rows, title=title(tuned), notes=notes, prose=(0, 4))


def section(record: Tuned) -> Section:
    """Tell which choices of the kernels are fastest on one graph."""
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
    shown, requests = table(record), [choice for curve in _curves(record) for choice in curve]
    words = ["tune", "GRAPH", "--ops", bench.listed(choice.op for choice in requests)]
    words += ["--widths", bench.listed(choice.width for choice in requests)]
    words += ["--heads", bench.listed(choice.heads for choice in requests), "--backend", record.kernels]
    return section_of(
        record,
        [shown],
        words,
        question="Which choices of the kernels are fastest on this graph?",
        verdict=verdict,
        pictures=[Picture("Speedup by width", CAPTION, panel) for panel in panels(record) if panel.lines],
        conditions=[bench.INTERVALS, *shown.notes],
        environment=record.machine,
        remark=bench.OF_GRAPH,
    )


def progress(choices: Sequence[ChoiceRecord], request: Request) -> tuple[str, None]:
    """The request that is tuned now."""
    return f"tuning {chosen(request)}", None


def title(tuned: Tuned) -> str:
    """The graph and where it was tuned."""
    where = tuned.machine.get("gpu") or units.counted(int(tuned.machine["threads"]), "thread")
    return f"Tuned kernels for {tuned.graph}, {where}"


def panels(tuned: Tuned) -> list[Panel]:
    """Speedup over the fallback against width, tuned and by the heuristic; the best width of each op marked."""
    lines = []
    for curve in _curves(tuned):
        best = max(curve, key=GAIN)
        heads = f", {best.heads} heads" if best.heads > 1 else ""
        points = [(record.width, record.speedup.ratio) for record in curve]
        lines.append(Line(f"{best.op}{heads}, tuned", points, [(best.width, "")]))
        untuned = [(record.width, record.speedup.ratio / record.gain.ratio) for record in curve]
        lines.append(Line(f"{best.op}{heads}, heuristic", untuned))
    return [Panel("", "width", "speedup over the fallback", lines)]


def _curves(tuned: Tuned) -> list[list[ChoiceRecord]]:
    """Records over widths on the graph itself, for every op and number of heads."""
    forward = (record for record in tuned.choices if record.adjacency == "graph")
    return [*grouped(forward, attrgetter("op", "heads")).values()]
