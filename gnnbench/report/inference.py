"""An inference as a table and on a page: backends side by side, with parity, weights and conditions below."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report.comparison import (
    FASTEST,
    NAMES,
    PEER,
    against_rows,
    faster,
    peak_cell,
    reasons,
    speedup_cell,
)
from gnnbench.report.page import Grid, Section, Tone, section_of
from gnnbench.report.plots import Picture, Strip, sizes, strips
from gnnbench.report.run import graph, kernels, machine
from gnnbench.report.run import title as of_model
from gnnbench.report.tables import NOTHING, Cell, Table, ended, time_cell
from gnnbench.results.schema import MODES

if TYPE_CHECKING:
    from gnnbench.comparison import Progress
    from gnnbench.inference._record import Inference, Row


def table(record: Inference) -> Table:
    """Backends side by side, with parity, weights, reasons, conditions and warnings below."""
    peers = [PEER] * any(row.backend == PEER for row in record.rows)
    baselines = ["pyg", *peers, *[FASTEST] * _other_fastest(record)]
    heading = [
        "backend",
        "pass",
        f"{_unit(record)}/s",
        *(f"speedup vs\n{NAMES.get(name, name)}" for name in baselines),
        "peak\nmemory",
        "prepare",
        *[f"test\n{record.dataset_facts.metric}" if record.dataset_facts else "test"] * bool(record.checkpoint),
    ]
    rows = [_row(row, baselines, bool(record.checkpoint)) for row in record.rows]
    shown = (heading, rows) if record.rounds else ([""], [])
    return Table(*shown, title=title(record), notes=[*_notes(record)])


def title(record: Inference) -> str:
    """Model, dataset, way and size."""
    size = f", {units.counted(record.rounds, 'round')}" if record.rounds else ""
    return f"{of_model(record.config, record.dataset)}: inference {MODES[record.mode]}{size}"


def section(record: Inference) -> Section:
    """Tell which backend infers fastest."""
    tone, verdict = _verdict(record)
    shown = table(record)
    return section_of(
        record,
        [shown],
        [*_command(record)],
        kind="Inference",
        title=title(record),
        question="Which backend comes to the outputs fastest, and are they PyG's?",
        verdict=verdict,
        tone=tone,
        grids=[Grid(replace(shown, notes=()))],
        pictures=[*_pictures(record)],
        conditions=[
            "Every backend ran in a fresh process per round, rounds of different backends in turn. Times are "
            "medians over the passes of all rounds, without the first of each process unless it took over 10 s; "
            "ranges are 95% bootstrap intervals",
            *shown.notes,
        ],
    )


def progress(event: Progress) -> tuple[str, Table]:
    """The table as far as it is known, and the process that runs now."""
    now = table(event.record)
    return f"{now.title}\n{event.stage}, {event.backend} ({event.done + 1} of {event.total})", now


def _command(record: Inference) -> Iterator[str]:
    yield from ("infer", "run.yaml", "--mode", record.mode)
    yield from ("--backends", ",".join(row.backend for row in record.rows), "--rounds", str(record.rounds))
    if record.checkpoint:
        yield from ("--checkpoint", record.checkpoint)
    if record.predictions:
        yield from ("--out", record.predictions.path)


def _notes(record: Inference) -> Iterator[str]:
    if record.rounds:
        yield _parity(record)
    yield from (f"{name}: {each.red}" for name, each in record.agreement.backends.items() if each.red)
    untrained = "those that training starts from, so no metric is given; --checkpoint names trained ones"
    yield f"Weights: {record.checkpoint or untrained}"
    if made := record.predictions:
        why = f": {ended(made.status)}: {made.reason}" if made.status not in ("ok", "pending") else ""
        yield f"Predictions: {made.path}, by {made.backend}{why}"
    yield from reasons(record)
    for row in record.rows:
        if row.way and row.way != MODES[record.mode]:
            yield f"{row.backend}: {row.way}"
    for row in record.rows:
        yield from kernels(row.bindings, row.backend)
    yield from graph(record.dataset_facts)
    yield from machine(record.environment)
    yield from (f"Warning: {text}" for text in record.warnings)


def _parity(record: Inference) -> str:
    parity = record.agreement
    if parity.ok is None:
        return f"Parity: not checked{f': {parity.reason}' if parity.reason else ''}; no speedup is given"
    if not parity.ok:
        return f"Parity: red against {parity.reference}; no speedup is given for a backend whose outputs differ"
    others = {name: each for name, each in parity.backends.items() if name != parity.reference}
    errors = ", ".join(f"{name} {units.power(each.rel_rms)}" for name, each in others.items() if each.rel_rms)
    loose = {name: each.tolerance for name, each in others.items() if each.tolerance != parity.tolerance}
    within = f"outputs within {units.power(parity.tolerance)} of {parity.reference}"
    within += "".join(f"; {name} within {units.power(size)}" for name, size in loose.items())
    return f"Parity: green, {within}" + f" (relative error: {errors})" * bool(errors)


def _row(row: Row, baselines: list[str], scored: bool) -> list[Cell]:
    name, _, options = row.backend.partition(":")
    label = Cell(name, options.replace(":", " "))
    if row.pass_s is None:
        return [label, Cell(ended(row.status)), *[NOTHING] * (len(baselines) + 3 + scored)]
    test = row.scores.test if row.scores else None
    return [
        label,
        time_cell(row.pass_s),
        Cell(units.count(round(row.outputs_per_s or 0))),
        *(speedup_cell(row.speedup.get(baseline), row.backend) for baseline in baselines),
        peak_cell(row),
        NOTHING if row.prepare_s is None else Cell(units.seconds(row.prepare_s)),
        *[NOTHING if test is None else Cell(f"{test:.4f}")] * scored,
    ]


def _other_fastest(record: Inference) -> bool:
    """Return whether another of PyG's own backends is faster than pyg."""
    fastest = (row.speedup.get(FASTEST) for row in record.rows)
    return any(each is not None and each.baseline != "pyg" for each in fastest)


def _unit(record: Inference) -> str:
    facts = record.dataset_facts
    return "graphs" if facts and facts.graphs is not None else "nodes"


def _best(record: Inference) -> Row | None:
    """The fastest row beside pyg that is proven right."""
    proven = [row for row in record.rows if row.pass_s and row.speedup.get("pyg") and row.backend != "pyg"]
    return min(proven, key=lambda row: row.pass_s.median if row.pass_s else 0.0, default=None)


def _verdict(record: Inference) -> tuple[Tone, list[str]]:
    if record.agreement.ok is False:
        return "bad", [f"{_parity(record)}."]
    best = _best(record)
    if best is None:
        return "plain", ["No backend can be held against pyg."]
    beyond, *rest = against_rows(best)
    told = [faster(best.backend, "infers", each) for each in (beyond, *rest)]
    return "good" if beyond.low > 1 else "plain", [*told, f"{_parity(record)}."]


def _pictures(record: Inference) -> Iterator[Picture]:
    timed = [row for row in record.rows if row.pass_s]
    if not timed:
        return
    yield strips(
        "The median pass of every round",
        "A dot is the median pass of a round; the line is the median of all, the band its 95% interval.",
        [Strip(row.backend, row.round_pass_s, [], row.pass_s) for row in timed if row.pass_s],
        label="pass",
    )
    memory = {row.backend: row.peak_memory_bytes for row in timed if row.peak_memory_bytes}
    yield sizes("Memory", "The highest of a pass.", memory)
