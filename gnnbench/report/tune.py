"""What the tuner found, as a table and as the speedup curve over widths; and what of it a run used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from gnnbench.ops.kernels import Choice
    from gnnbench.plots import Panel
    from gnnbench.results import ChoiceRecord, Ratio
    from gnnbench.tuned import Tuned

FALLBACK = "the row kernel as compiled for any processor, without prefetch"
GPU_FALLBACK = "plain PyTorch"


def table(found: Tuned, saved: Path | None = None) -> Table:
    """One line per op and width; `saved` is the file that it is kept in."""
    rows = [
        [
            Cell(_name(record) + (" *" if record in _best(found.choices) else "")),
            Cell(units.seconds(record.time_s)),
            _ratio(record.speedup),
            _ratio(record.gain) if record.choice != record.default else Cell("1x", "is the heuristic's"),
            Cell(_words(record.choice)),
        ]
        for record in found.choices
    ]
    notes = [
        "* the width of the largest speedup over the fallback",
        f"Fallback: {GPU_FALLBACK if 'gpu' in found.machine else FALLBACK}",
    ]
    notes.append(f"Tuning took {units.seconds(found.tuning_s)}; `train` and `compare` use its choices from now on")
    heading = ("op, width", "time", "speedup vs\nfallback", "speedup vs\nheuristic", "choice")
    kept = [f"Kept in: {saved}"] if saved else []
    return Table(heading, rows, title=title(found), notes=[*notes, *kept], prose=(0, 4))


def title(found: Tuned) -> str:
    """What was tuned."""
    where = found.machine.get("gpu") or units.counted(int(found.machine["threads"]), "thread")
    return f"Tuned kernels for {found.graph}, {where}"


def panels(found: Tuned) -> list[Panel]:
    """Speedup over the fallback against width, tuned and by the heuristic; the best width of each op marked."""
    from gnnbench.plots import Line, Panel

    lines = []
    for op in dict.fromkeys(record.op for record in found.choices):
        curve = [record for record in found.choices if record.op == op and record.adjacency == "graph"]
        best = [record.width for record in _best(found.choices) if record.op == op]
        lines.append(Line(f"{op}, tuned", [(one.width, one.speedup.ratio) for one in curve], best[0]))
        untuned = [(one.width, one.speedup.ratio / one.gain.ratio) for one in curve]
        lines.append(Line(f"{op}, heuristic", untuned))
    return [Panel("", "width", "speedup over the fallback", lines)]


def used(choices: Sequence[ChoiceRecord], tuning_s: float | None, backend: str = "Kernels") -> Iterator[str]:
    """Which tuned choices a run used that differ from the heuristic's; nothing where none was known."""
    if not choices:
        return
    changed = [record for record in choices if record.choice != record.default]
    words = "; ".join(f"{_name(record)}: {_words(record.choice)}" for record in changed)
    cost = f", found earlier in {units.seconds(tuning_s)}" if tuning_s else ""
    count = units.counted(len(choices), "tuned choice")
    yield f"{backend}: {count}{cost}; {words or 'all as the heuristic takes them'}"


def _name(record: ChoiceRecord) -> str:
    return f"{record.op}{' of the transpose' if record.adjacency == 'transpose' else ''}, {record.width}"


def _best(choices: Sequence[ChoiceRecord]) -> list[ChoiceRecord]:
    """For every op, the record of the largest speedup on the graph itself."""
    forward = [record for record in choices if record.adjacency == "graph"]
    ops = dict.fromkeys(record.op for record in forward)
    return [max((one for one in forward if one.op == op), key=lambda one: one.speedup.ratio) for op in ops]


def _words(choice: Choice) -> str:
    algorithm = [str(value) for name, value in choice.items() if name == "algorithm"]
    return ", ".join(algorithm + [f"{name} {value}" for name, value in choice.items() if name != "algorithm"])


def _ratio(found: Ratio) -> Cell:
    return Cell(units.ratio(found.ratio), units.ratio(found.low, found.high))
