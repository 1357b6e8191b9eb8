"""Benchmarks of ops, of layers and of batches as tables and on a page: ours beside every peer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gnnbench import units
from gnnbench.benchmarks import collate, draws, layers
from gnnbench.benchmarks import records as schema
from gnnbench.benchmarks.records import Row
from gnnbench.kinds import ResultKind
from gnnbench.kinds.run import machine
from gnnbench.report.page import Section, Tone, section_of
from gnnbench.report.plots import Line, Panel, Picture
from gnnbench.report.tables import NOTHING, Cell, Cells, Table, ratio_cell, row_time, time_cell
from gnnbench.results.schema import Ratio
from gnnbench.stats import grouped

GATHERED = "edges x width x 4 bytes over time, GB/s"
PYG = "pyg"
INTERVALS = "Times are medians over interleaved rounds; ranges are 95% bootstrap intervals"
OF_GRAPH = "GRAPH stands for the dataset, whose name on the command line the result does not keep"
OF_ROWS = {"widths": "width", "heads": "heads", "batches": "batch_size"}  # options and what rows call them


class _Benchmark(ResultKind):
    file = "bench.json"
    noun = "benchmark"
    continues = False


class Bench(_Benchmark, schema.Bench):
    """A benchmark of one op; a line of its frame is an implementation on one case."""

    mark = "weighted"


class CollateBench(_Benchmark, collate.CollateBench):
    """A benchmark of batches of graphs; a line of its frame is an implementation on one size."""

    mark = "dtype"


class LayerBench(_Benchmark, layers.LayerBench):
    """A benchmark of layers of PyG; a line of its frame is an implementation of one of them."""

    mark = "layers"


class NegativesBench(_Benchmark, draws.NegativesBench):
    """A benchmark of negatives; a line of its frame is an implementation on one size."""

    mark = "excluded"


class SampleBench(_Benchmark, draws.SampleBench):
    """A benchmark of sampled neighbourhoods; a line of its frame is an implementation on one size."""

    mark = "fanouts"


OTHERS = {"collate": CollateBench, "conv": LayerBench, "negatives": NegativesBench, "sample": SampleBench}


def table(bench: Any) -> Table:
    """The table of a benchmark."""
    return SHOWN.get(bench.op, OP)[2](bench)


def progress(*event: Any) -> tuple[str, Table | None]:
    """Show what runs now, and the table of an op as far as it is known."""
    *known, step = event
    return (f"{title(known[0])}\n{step}", table(known[0])) if known else (step, None)


def section(record: Any) -> Section:
    """Tell whether ours is right, and how fast it is beside its peers."""
    ours = [row for row in record.rows if row.implementation == record.backend]
    kind, question, table_of = SHOWN.get(record.op, OP)
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
    shown = [panel for panel in panels(record) if panel.lines] if record.op not in OTHERS else []
    caption = "Higher is faster; a point is the median."
    drawn = [Picture(f"{record.op} by {panel.x_label}", caption, panel) for panel in shown]
    shown_as = {"kind": kind, "question": question.format(**vars(record)), "pictures": drawn}
    return measured(record, ours, table_of(record), words, **shown_as)


def measured(
    record: schema.Benchmark, ours: Sequence[Any], table: Table, words: list[str], **others: Any
) -> Section:
    """A benchmark, of which rows in `ours` are of its backend; `gnnbench` with `words` measures it again."""
    tone, verdict = _verdict(ours, record.backend, record.rows)
    fields: dict[str, Any] = {
        "verdict": verdict,
        "tone": tone,
        "conditions": [INTERVALS, *table.notes],
        "remark": OF_GRAPH,
    }
    return section_of(record, [table], words, **fields | others)


def _verdict(ours: Sequence[Any], backend: str, rows: Sequence[Any]) -> tuple[Tone, list[str]]:
    """How often ours is beyond doubt faster and slower than each peer; no figure is drawn from several."""
    wrong = [row for row in rows if row.status == "wrong"]
    sentences = [
        f"{name} is wrong in {units.counted(count, 'case')} and gets no time there."
        for name, count in Counter(row.implementation for row in wrong).items()
    ]
    every: list[Ratio] = []
    for peer in dict.fromkeys(peer for row in ours for peer in row.ratio):
        gains = [ratio for row in ours if (ratio := row.ratio.get(peer)) and peer != row.implementation]
        faster, slower = sum(gain.low > 1 for gain in gains), sum(gain.high < 1 for gain in gains)
        beyond = f"{faster} of {units.counted(len(gains), 'case')}" + f", slower in {slower}" * bool(slower)
        sentences += [f"{backend} is faster than {peer} in {beyond}."] * bool(gains)
        every += gains
    good: Tone = "good" if every and all(gain.low > 1 for gain in every) else "plain"
    bad = any(row.backend == backend for row in wrong)
    return "bad" if bad else good, sentences or ["Nothing was timed beside it."]


def listed(values: Iterable[Any]) -> str:
    """Values once each, as an option takes them."""
    return ",".join(dict.fromkeys(map(str, values)))


def _op(bench: schema.Bench) -> Table:
    absent = ("unsupported", "unavailable")  # everywhere, so that the reason below the table is enough
    ran = {row.implementation for row in bench.rows if row.status not in absent}
    peers = [peer for peer in bench.peers if peer != bench.backend and peer in ran]
    cases = grouped(bench.rows, lambda row: (*row.shape, row.heads, row.width, row.direction)).values()
    by_name = ({row.implementation: row for row in case} for case in cases)
    rows: list[Cells] = [
        {
            _across(bench): _case(ours, bench.op),
            bench.backend: row_time(ours),
            "speed" if any(row.shape for row in bench.rows) else "gathers": _speed(ours),
            "of\nceiling": f"{ours.roofline_fraction:.0%}" if ours.roofline_fraction else NOTHING,
            **{heading: cell for peer in peers for heading, cell in _beside(case[peer], ours).items()},
        }
        for case, ours in ((case, case[bench.backend]) for case in by_name)
    ]
    return Table.of(rows, title=title(bench), notes=[*_notes(bench)])


def title(bench: schema.Bench) -> str:
    """The op and the graph."""
    return (
        f"{bench.op}{' with edge values' if bench.weighted else ''}{f' on {bench.graph}' if bench.graph else ''}"
    )


def panels(bench: schema.Bench) -> list[Panel]:
    """Speed against width or size, one line per implementation; one panel per direction and number of heads."""
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in bench.rows:
        heads = f", {row.heads} heads" if row.heads > 1 and bench.op != "edge_softmax" else ""
        points_of = lines.setdefault(row.direction + heads, {})
        if row.shape and row.time_s:
            size = math.prod(row.shape)
            points_of.setdefault(row.implementation, []).append((size, size / row.time_s.median / 1e9))
        elif row.gather_bytes_per_s:
            points_of.setdefault(row.implementation, []).append((row.width, row.gather_bytes_per_s / 1e9))
    across = _across(bench)
    sized = across == "shape"
    across, up = ("product of all sizes", "that over time, G/s") if sized else (across, GATHERED)
    return [
        Panel(name, across, up, [Line(*line) for line in points_of.items()]) for name, points_of in lines.items()
    ]


def _across(bench: schema.Bench) -> str:
    return "shape" if any(row.shape for row in bench.rows) else "heads" if bench.op == "edge_softmax" else "width"


def _speed(row: Row) -> Cell:
    if row.flop_per_s:
        return Cell(f"{row.flop_per_s / 1e9:.0f} GFLOP/s")
    return Cell(f"{row.gather_bytes_per_s / 1e9:.1f} GB/s") if row.gather_bytes_per_s else NOTHING


def _case(row: Row, op: str) -> str:
    heads = f", {row.heads} heads" if row.heads > 1 and op != "edge_softmax" else ""
    size = "x".join(map(str, row.shape)) or f"{row.width}{heads}"
    return f"{size}{', backward' if row.direction == 'backward' else ''}"


def _beside(row: Row, ours: Row) -> Cells:
    """A peer's time and what ours gains; of our own bfloat16 what it gains, and its error."""
    peer, name, time = row.implementation, ours.backend, row_time(row)
    if row.backend != name:
        return {peer: time, f"{name} vs\n{peer}": ratio_cell(ours.ratio.get(peer))}
    error = NOTHING if row.error is None else f"{row.error:.1e}"
    return {peer: time, f"{peer}\nvs {name}": ratio_cell(row.ratio.get(ours.implementation)), "error": error}


def _notes(bench: schema.Bench) -> Iterator[str]:
    remarks = grouped((row for row in bench.rows if row.reason), lambda row: (row.implementation, row.reason))
    for (name, reason), concerned in remarks.items():
        everywhere = len(concerned) == sum(row.implementation == name for row in bench.rows)
        where = "" if everywhere else f" ({'; '.join(_case(row, bench.op) for row in concerned)})"
        yield f"{name}{where}: {reason}"
    for name in dict.fromkeys(row.implementation for row in bench.rows if row.rounds and row.error is not None):
        yield (
            f"{name}: features are rounded to bfloat16 when they are gathered, and accumulated in float32; its "
            "error is the largest difference from float64, over the entry itself plus the root mean square of all"
        )
    rows = units.count(bench.checked_rows or 0)
    sampled = f"{rows} of its rows" if bench.size and bench.checked_rows != bench.size.nodes else "all of its rows"
    yield f"Checked before timing: every result against float64 on {sampled}"
    yield from _limits(bench)
    yield from machine(bench.environment)
    if bench.versions:
        yield "Peers: " + ", ".join(f"{name} {version}" for name, version in bench.versions.items())


def _limits(bench: schema.Bench) -> Iterator[str]:
    """The ceilings that shares are of, and the graph."""
    size, ceilings = bench.size, bench.ceilings
    if ceilings and (size is None or ceilings.gather_bytes_per_s):
        other = ""
        if size and ceilings.gather_bytes_per_s:
            other = f", {ceilings.gather_bytes_per_s / 1e9:.0f} GB/s gathered from the L2 cache"
        elif ceilings.flop_per_s and any(row.flop_per_s for row in bench.rows):
            other = f", {ceilings.flop_per_s / 1e9:.0f} GFLOP/s in products"
        yield (
            f"Ceilings of this machine: {ceilings.stream_bytes_per_s / 1e9:.1f} GB/s streamed from memory{other}. "
            "The share is that of the time which the slower of both allows, every tensor crossing the bus once; "
            "it can pass 100% where tensors stay in the caches"
        )
    if size:
        symmetry = "symmetric" if size.symmetric else "not symmetric"
        degree = f"largest in-degree {size.max_degree:,}"
        yield f"Graph: {size.nodes:,} nodes, {size.edges:,} edges, {degree}, {symmetry}"


def _layers(bench: layers.LayerBench) -> Table:
    """One line per layer and width, which is in the title where all have one."""
    widths = {row.width for row in bench.rows}
    several = len(widths) > 1
    heading = ["layer", *["width"] * several, "way", "forward,\npyg", f"forward,\n{bench.backend}", "speedup"]
    heading += ["step,\npyg", f"step,\n{bench.backend}", "speedup", "memory,\npyg", f"memory,\n{bench.backend}"]
    rows = [
        [Cell(conv), *[Cell(units.count(width))] * several, *_layer(case, bench.backend)]
        for (conv, width), case in grouped(bench.rows, lambda row: (row.conv, row.width)).items()
    ]
    title = f"Layers on {bench.graph}" + (f", width {min(widths)}" if len(widths) == 1 else "")
    return Table(heading, rows, title=title, notes=[*_layer_notes(bench)], prose=(0, heading.index("way")))


def _layer(case: Sequence[layers.LayerRow], ours: str) -> Iterator[Cell]:
    rows = {(row.direction, row.implementation): row for row in case}
    yield Cell(rows["step", ours].way or rows["forward", ours].way or "–")
    for direction in ("forward", "step"):
        yield from (row_time(rows[direction, name]) for name in (PYG, ours))
        yield ratio_cell(rows[direction, ours].ratio.get(PYG))
    for name in (PYG, ours):
        nbytes = rows["step", name].memory_increase_bytes
        yield NOTHING if nbytes is None else Cell(units.size(nbytes))


def _layer_notes(bench: layers.LayerBench) -> Iterator[str]:
    yield from dict.fromkeys(f"{row.conv}: {row.reason}" for row in bench.rows if row.reason)
    yield (
        "Checked before and after timing: outputs, and every gradient of inputs and parameters, are PyG's to "
        "within 1e-4 of their root mean square, or at most twice as far from results in float64 as PyG's own"
    )
    yield "Memory: above what was there before a step, which is a forward with its backward"
    threads = units.counted(bench.threads, "thread")
    yield f"Graph: {bench.nodes:,} nodes, {bench.edges:,} edges; {threads}"
    yield from machine(bench.environment)


def _collate(bench: collate.CollateBench) -> Table:
    """One line per batch size: our time per graph, and every peer's."""
    name = bench.backend
    peers = [peer for peer in bench.peers if peer != name]
    rows: list[Cells] = []
    for size, of_size in grouped(bench.rows, lambda row: row.batch_size).items():
        by_name = {row.implementation: row for row in of_size}
        ours = by_name[name]
        cells = {"graphs in\na batch": Cell(units.count(size)), f"{name}\nper graph": row_time(ours)}
        for peer in peers:
            cells[f"{peer}\nper graph"] = row_time(by_name[peer])
            cells[f"{name} vs\n{peer}"] = ratio_cell(ours.ratio.get(peer))
        rows.append(cells)
    notes = [
        *(f"{row.implementation}, batches of {row.batch_size}: {row.reason}" for row in bench.rows if row.reason),
        "Checked before and after timing: x, y, ptr and edge_index of batches are PyG's to the last bit, and rows "
        "and transpose are those of its edge_index",
        f"{name} puts batches together in one thread, with rows and transpose; PyG's DataLoader has no workers, "
        "and has read every graph before. Edge features are left out",
        f"Graphs: {units.count(bench.graphs)}, with {units.count(bench.nodes)} nodes, {units.count(bench.edges)} "
        f"edges and {bench.features} features in {bench.dtype}",
        *machine(bench.environment),
    ]
    return Table.of(rows, title=f"Batches of {bench.graph}", notes=notes)


def _sample(bench: draws.SampleBench) -> Table:
    columns = {"seeds in\na batch": "batch_size", "part": "part", "sampler": "implementation"}
    notes = [
        "Checked before: every edge of ours is one of the graph, and none comes twice. Speedups of sampling are "
        "of the time for an edge, as DGL samples nodes again that were sampled before",
        f"Fanouts {', '.join(map(str, bench.fanouts))}; {units.counted(bench.threads, 'thread')}; "
        f"{units.count(bench.nodes)} nodes, {units.count(bench.edges)} edges, {bench.features} features",
    ]
    return _by_row(bench, f"Sampled neighbourhoods of {bench.graph}", columns, "edges", "edges", notes)


def _negatives(bench: draws.NegativesBench) -> Table:
    columns = {"pairs in\na batch": "batch_size", "drawn by": "implementation"}
    possible = bench.nodes**2 - bench.excluded
    notes = [
        "Checked before: a batch has its number of pairs, none of them an edge or a self-loop",
        "The graph was sorted before; PyG looks at its edge_index in every batch, and draws no pair twice",
        f"{units.count(bench.nodes)} nodes, {units.count(bench.edges)} edges, {possible / bench.nodes**2:.4%} of "
        f"all pairs can be drawn; {units.counted(bench.threads, 'thread')}",
    ]
    return _by_row(bench, f"Negatives of {bench.graph}", columns, "pairs", "batch_size", notes)


def _by_row(
    bench: schema.BatchBench, title: str, columns: dict[str, str], members: str, size: str, notes: Sequence[str]
) -> Table:
    """One line per row: fields by heading, the time of a batch, its `members` a second, and how peers compare.

    Where the field `size` has the number of members, the time of the row is that of one, otherwise of a batch.
    """
    rows: list[Cells] = []
    for row in bench.rows:
        names = {heading: getattr(row, name) for heading, name in columns.items()}
        time, rate = row_time(row), "–"
        if row.time_s and (number := getattr(row, size)):
            time = time_cell(row.time_s, number)
            rate = f"{1e-6 / row.time_s.median:.3g} M"
        speedups = {f"speedup\nvs {peer}": ratio_cell(row.ratio.get(peer)) for peer in bench.peers}
        rows.append({**names, "time of\na batch": time, f"{members}\na second": rate, **speedups})
    reasons = dict.fromkeys(f"{row.implementation}: {row.reason}" for row in bench.rows if row.reason)
    return Table.of(rows, title=title, notes=[*reasons, *notes, *machine(bench.environment)])


Shown = tuple[str, str, Callable[[Any], Table]]  # the kind of a page, its question, and what makes its table
OP: Shown = ("Op", "Is {op} on {backend} right, and how fast is it beside its peers?", _op)
SHOWN: dict[str, Shown] = {  # of all but single ops
    "collate": ("Batches", "How long does it take to put graphs together into a batch, per graph?", _collate),
    "sample": ("Samples", "How long does it take to draw a neighbourhood and to gather its features?", _sample),
    "negatives": ("Negatives", "How long does it take to draw pairs of nodes that are no edges?", _negatives),
    "conv": ("Layers", "Are layers on {backend} right, and how fast and small beside PyG's own code?", _layers),
}
