"""Inferences of `gnnbench infer` as tables and pages: backends side by side, with parity and weights below."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from gnnbench import inference as schema
from gnnbench import units
from gnnbench.comparison.record import FASTEST, PEER
from gnnbench.kinds import ResultKind
from gnnbench.kinds.comparison import against_others, backend_cell, beside_pyg, fastest, parity, reasons
from gnnbench.kinds.run import circumstances, kernels
from gnnbench.kinds.run import title as of_model
from gnnbench.report.page import Section, section_of
from gnnbench.report.plots import Picture, Strip, Strips, sizes
from gnnbench.report.tables import NOTHING, Cells, Table, ended, prepare_cell, time_cell
from gnnbench.results import files
from gnnbench.results.schema import MODES

if TYPE_CHECKING:
    from gnnbench.comparison.turns import Progress


class Inference(ResultKind, schema.Inference):
    """An inference; a line of its frame is a backend."""

    mark = "checkpoint"
    file = files.INFERENCE
    noun = "record of inference"


def table(record: schema.Inference) -> Table:
    """Backends side by side, with parity, weights, reasons, conditions and warnings below."""
    return Table.of(_rows(record) if record.rounds else (), title=title(record), notes=[*_notes(record)])


def title(record: schema.Inference) -> str:
    """Model, dataset, way and size."""
    size = f", {units.counted(record.rounds, 'round')}" if record.rounds else ""
    return f"{of_model(record.config, record.dataset)}: inference {MODES[record.mode]}{size}"


def section(record: schema.Inference) -> Section:
    """Tell which backend infers fastest."""
    shown, checked = table(record), f"{next(parity(record.agreement, 'outputs'))}."
    best = fastest(record.rows, attrgetter("pass_s"), besides="pyg")
    tone, verdict = against_others(best, "infers")
    verdict += [checked] * bool(best)
    if record.agreement.ok is False:
        tone, verdict = "bad", [checked]
    words = ["infer", "run.yaml", "--mode", record.mode]
    words += ["--backends", ",".join(row.backend for row in record.rows), "--rounds", str(record.rounds)]
    words += ["--checkpoint", record.checkpoint] * bool(record.checkpoint)
    words += ["--out", record.predictions.path] if record.predictions else []
    return section_of(
        record,
        [shown],
        words,
        question="Which backend comes to the outputs fastest, and are they PyG's?",
        verdict=verdict,
        tone=tone,
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


def _notes(record: schema.Inference) -> Iterator[str]:
    if record.rounds:
        yield from parity(record.agreement, "outputs")
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
    yield from circumstances(record)


def _rows(record: schema.Inference) -> Iterator[Cells]:
    facts, of_fastest = record.dataset_facts, [row.speedup.get(FASTEST) for row in record.rows]
    baselines = ["pyg", *[PEER] * any(row.backend == PEER for row in record.rows)]
    baselines += [FASTEST] * any(each is not None and each.baseline != "pyg" for each in of_fastest)
    outputs = "graphs" if facts and facts.graphs is not None else "nodes"
    for row in record.rows:
        test = row.scores.test if row.scores else None
        tested = {f"test\n{facts.metric}" if facts else "test": NOTHING if test is None else f"{test:.4f}"}
        yield {
            "backend": backend_cell(row),
            "pass": time_cell(row.pass_s) if row.pass_s else ended(row.status),
            f"{outputs}/s": round(row.outputs_per_s or 0) if row.pass_s else NOTHING,
            **beside_pyg(row, baselines),
            "prepare": prepare_cell(row.prepare_s, None),
            **(tested if record.checkpoint else {}),
        }


def _pictures(record: schema.Inference) -> Iterator[Picture]:
    timed = [row for row in record.rows if row.pass_s]
    if not timed:
        return
    dots = "A dot is the median pass of a round; the line is the median of all, the band its 95% interval."
    strips = [Strip(row.backend, row.round_pass_s, [], row.pass_s) for row in timed if row.pass_s]
    yield Picture("The median pass of every round", dots, Strips(strips, "pass"))
    memory = {row.backend: row.peak_memory_bytes for row in timed if row.peak_memory_bytes}
    yield Picture("Memory", "The highest of a pass.", sizes(memory))
