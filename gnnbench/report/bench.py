"""Benchmarks of ops, of layers and of batches as tables and on a page: ours beside every peer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gnnbench import units
from gnnbench.report.page import Section, Tone, section_of
from gnnbench.report.plots import of_panel
from gnnbench.report.run import machine
from gnnbench.report.tables import NOTHING, Cell, Table, ratio_cell, row_time

if TYPE_CHECKING:
    from gnnbench.benchmarks.collate import CollateBench
    from gnnbench.benchmarks.layers import LayerBench, LayerRow
    from gnnbench.benchmarks.negatives import NegativesBench
    from gnnbench.benchmarks.records import BatchBench, BatchRow, Bench, Benchmark, Row
    from gnnbench.benchmarks.sample import SampleBench
    from gnnbench.report.plots import Panel

BF16 = "-bf16"  # after the name of a backend that gathers in it
GATHERED = "edges x width x 4 bytes over time, GB/s"
PYG = "pyg"
INTERVALS = "Times are medians over interleaved rounds; ranges are 95% bootstrap intervals"
OF_GRAPH = "GRAPH stands for the dataset, whose name on the command line the result does not keep"
SHOWN = {  # by op, the kind of its page and its question; of single ops the last
    "collate": ("Batches", "How long does it take to put graphs together into a batch, per graph?"),
    "sample": ("Samples", "How long does it take to draw a neighbourhood and to gather its features?"),
    "negatives": ("Negatives", "How long does it take to draw pairs of nodes that are no edges?"),
    "conv": ("Layers", "Are layers on {backend} right, and how fast and small beside PyG's own code?"),
    "": ("Op", "Is {op} on {backend} right, and how fast is it beside its peers?"),
}
OF_ROWS = {"widths": "width", "heads": "heads", "batches": "batch_size"}  # options and what rows call them


def table(bench: Any) -> Table:
    """The table of a benchmark."""
    return TABLES.get(bench.op, _op)(bench)


def progress(*event: Any) -> tuple[str, Table | None]:
    """Show what runs now, and the table of an op as far as it is known."""
    *known, step = event
    return (f"{title(known[0])}\n{step}", table(known[0])) if known else (step, None)


def section(record: Any) -> Section:
    """Tell whether ours is right, and how fast it is beside its peers."""
    ours = [row for row in record.rows if row.implementation == record.backend]
    kind, question = SHOWN.get(record.op, SHOWN[""])
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
    shown = [panel for panel in panels(record) if panel.lines] if record.op not in TABLES else []
    caption = "Higher is faster; a point is the median."
    drawn = [of_panel(panel, f"{record.op} by {panel.x_label}", caption) for panel in shown]
    question = question.format(**vars(record))
    return measured(record, ours, kind, question, table(record), words, pictures=drawn)


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


def _op(bench: Bench) -> Table:
    """One line per case and direction."""
    absent = ("unsupported", "unavailable")  # everywhere, so that the reason below the table is enough
    ran = {row.implementation for row in bench.rows if row.status not in absent}
    peers = [peer for peer in bench.peers if peer != bench.backend and peer in ran]
    heading = [
        _across(bench),
        bench.backend,
        "speed" if any(row.shape for row in bench.rows) else "gathers",
        "of\nceiling",
        *(text for peer in peers for text in _heading(peer, bench.backend)),
    ]
    rows = [
        [
            Cell(_case(ours, bench.op)),
            _time(ours),
            _speed(ours),
            Cell(f"{ours.roofline_fraction:.0%}") if ours.roofline_fraction else NOTHING,
            *(cell for peer in peers for cell in _beside(case[peer], ours)),
        ]
        for case in _cases(bench)
        for ours in [case[bench.backend]]
    ]
    return Table(heading, rows, title=title(bench), notes=[*_notes(bench)])


def title(bench: Bench) -> str:
    """The op and the graph."""
    return (
        f"{bench.op}{' with edge values' if bench.weighted else ''}{f' on {bench.graph}' if bench.graph else ''}"
    )


def panels(bench: Bench) -> list[Panel]:
    """Speed against width or size, one line per implementation; one panel per direction and number of heads."""
    from gnnbench.report.plots import Line, Panel

    lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in bench.rows:
        heads = f", {row.heads} heads" if row.heads > 1 and bench.op != "edge_softmax" else ""
        of_panel = lines.setdefault(row.direction + heads, {})
        if row.shape and row.time_s:
            size = math.prod(row.shape)
            of_panel.setdefault(row.implementation, []).append((size, size / row.time_s.median / 1e9))
        elif row.gather_bytes_per_s:
            of_panel.setdefault(row.implementation, []).append((row.width, row.gather_bytes_per_s / 1e9))
    across = _across(bench)
    sized = across == "shape"
    across, up = ("product of all sizes", "that over time, G/s") if sized else (across, GATHERED)
    return [
        Panel(name, across, up, [Line(*line) for line in of_panel.items()]) for name, of_panel in lines.items()
    ]


def _cases(bench: Bench) -> Iterator[dict[str, Row]]:
    cases: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in bench.rows:
        cases.setdefault((*row.shape, row.heads, row.width, row.direction), {})[row.implementation] = row
    yield from cases.values()


def _across(bench: Bench) -> str:
    """Return what cases differ in."""
    return "shape" if any(row.shape for row in bench.rows) else "heads" if bench.op == "edge_softmax" else "width"


def _speed(row: Row) -> Cell:
    if row.flop_per_s:
        return Cell(f"{row.flop_per_s / 1e9:.0f} GFLOP/s")
    return Cell(f"{row.gather_bytes_per_s / 1e9:.1f} GB/s") if row.gather_bytes_per_s else NOTHING


def _case(row: Row, op: str) -> str:
    heads = f", {row.heads} heads" if row.heads > 1 and op != "edge_softmax" else ""
    size = "x".join(map(str, row.shape)) or f"{row.width}{heads}"
    return f"{size}{', backward' if row.direction == 'backward' else ''}"


def _heading(peer: str, ours: str) -> tuple[str, ...]:
    return (peer, f"{peer}\nvs {ours}", "error") if peer == ours + BF16 else (peer, f"{ours} vs\n{peer}")


def _beside(row: Row, ours: Row) -> tuple[Cell, ...]:
    """A peer's time and what ours gains; of our own bfloat16 what it gains, and its error."""
    if row.backend != ours.backend:
        return _time(row), ratio_cell(ours.ratio.get(row.implementation))
    return (
        _time(row),
        ratio_cell(row.ratio.get(ours.implementation)),
        NOTHING if row.error is None else Cell(f"{row.error:.1e}"),
    )


def _time(row: Row) -> Cell:
    return NOTHING if row.status == "pending" else row_time(row)


def _notes(bench: Bench) -> Iterator[str]:
    remarks: dict[tuple[str, str], list[Row]] = {}
    for row in bench.rows:
        if row.reason:
            remarks.setdefault((row.implementation, row.reason), []).append(row)
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


def _limits(bench: Bench) -> Iterator[str]:
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
        yield (
            f"Graph: {units.count(size.nodes)} nodes, {units.count(size.edges)} edges, largest in-degree "
            f"{units.count(size.max_degree)}, {'symmetric' if size.symmetric else 'not symmetric'}"
        )


def _layers(bench: LayerBench) -> Table:
    """One line per layer and width, which is in the title where all have one."""
    widths = {row.width for row in bench.rows}
    several = len(widths) > 1
    heading = ["layer", *["width"] * several, "way", "forward,\npyg", f"forward,\n{bench.backend}", "speedup"]
    heading += ["step,\npyg", f"step,\n{bench.backend}", "speedup", "memory,\npyg", f"memory,\n{bench.backend}"]
    cases: dict[tuple[str, int], dict[tuple[str, str], LayerRow]] = {}
    for row in bench.rows:
        cases.setdefault((row.conv, row.width), {})[row.direction, row.implementation] = row
    rows = [
        [Cell(conv), *[Cell(units.count(width))] * several, *_layer(by_name, bench.backend)]
        for (conv, width), by_name in cases.items()
    ]
    title = f"Layers on {bench.graph}" + (f", width {min(widths)}" if len(widths) == 1 else "")
    return Table(heading, rows, title=title, notes=[*_layer_notes(bench)], prose=(0, heading.index("way")))


def _layer(rows: dict[tuple[str, str], LayerRow], ours: str) -> Iterator[Cell]:
    yield Cell(rows["step", ours].way or rows["forward", ours].way or "–")
    for direction in ("forward", "step"):
        yield from (row_time(rows[direction, name]) for name in (PYG, ours))
        yield ratio_cell(rows[direction, ours].ratio.get(PYG))
    for name in (PYG, ours):
        nbytes = rows["step", name].memory_increase_bytes
        yield NOTHING if nbytes is None else Cell(units.size(nbytes))


def _layer_notes(bench: LayerBench) -> Iterator[str]:
    yield from dict.fromkeys(f"{row.conv}: {row.reason}" for row in bench.rows if row.reason)
    yield (
        "Checked before and after timing: outputs, and every gradient of inputs and parameters, are PyG's to "
        "within 1e-4 of their root mean square, or at most twice as far from results in float64 as PyG's own"
    )
    yield "Memory: above what was there before a step, which is a forward with its backward"
    yield (
        f"Graph: {units.count(bench.nodes)} nodes, {units.count(bench.edges)} edges; "
        f"{units.counted(bench.threads, 'thread')}"
    )
    yield from machine(bench.environment)


def _collate(bench: CollateBench) -> Table:
    """One line per batch size: our time per graph, and every peer's."""
    ours = bench.backend
    peers = [peer for peer in bench.peers if peer != ours]
    sizes: dict[int, dict[str, BatchRow]] = {}
    for row in bench.rows:
        sizes.setdefault(row.batch_size, {})[row.implementation] = row
    rows = [
        [
            Cell(units.count(size)),
            row_time(by_name[ours]),
            *(
                cell
                for peer in peers
                for cell in (row_time(by_name[peer]), ratio_cell(by_name[ours].ratio.get(peer)))
            ),
        ]
        for size, by_name in sizes.items()
    ]
    heading = ["graphs in\na batch", f"{ours}\nper graph"]
    heading += [text for peer in peers for text in (f"{peer}\nper graph", f"{ours} vs\n{peer}")]
    notes = [
        *(f"{row.implementation}, batches of {row.batch_size}: {row.reason}" for row in bench.rows if row.reason),
        "Checked before and after timing: x, y, ptr and edge_index of batches are PyG's to the last bit, and rows "
        "and transpose are those of its edge_index",
        f"{ours} puts batches together in one thread, with rows and transpose; PyG's DataLoader has no workers, "
        "and has read every graph before. Edge features are left out",
        f"Graphs: {units.count(bench.graphs)}, with {units.count(bench.nodes)} nodes, {units.count(bench.edges)} "
        f"edges and {bench.features} features in {bench.dtype}",
        *machine(bench.environment),
    ]
    return Table(heading, rows, title=f"Batches of {bench.graph}", notes=notes)


def _sample(bench: SampleBench) -> Table:
    """One line per batch size, part and sampler: time of a batch, edges per second, and how peers compare."""
    notes = [
        "Checked before: every edge of ours is one of the graph, and none comes twice. Speedups of sampling are "
        "of the time for an edge, as DGL samples nodes again that were sampled before",
        f"Fanouts {', '.join(map(str, bench.fanouts))}; {units.counted(bench.threads, 'thread')}; "
        f"{units.count(bench.nodes)} nodes, {units.count(bench.edges)} edges, {bench.features} features",
    ]
    return _by_row(
        bench,
        f"Sampled neighbourhoods of {bench.graph}",
        ["seeds in\na batch", "part", "sampler", "time of\na batch", "edges\na second"],
        lambda row: (units.count(row.batch_size), row.part, row.implementation),
        lambda row: row.edges,
        notes,
    )


def _negatives(bench: NegativesBench) -> Table:
    """One line per batch size and implementation: time of a batch, pairs per second, and how peers compare."""
    possible = bench.nodes**2 - bench.excluded
    notes = [
        "Checked before: a batch has its number of pairs, none of them an edge or a self-loop",
        "The graph was sorted before; PyG looks at its edge_index in every batch, and draws no pair twice",
        f"{units.count(bench.nodes)} nodes, {units.count(bench.edges)} edges, {possible / bench.nodes**2:.4%} of "
        f"all pairs can be drawn; {units.counted(bench.threads, 'thread')}",
    ]
    return _by_row(
        bench,
        f"Negatives of {bench.graph}",
        ["pairs in\na batch", "drawn by", "time of\na batch", "pairs\na second"],
        lambda row: (units.count(row.batch_size), row.implementation),
        lambda row: row.batch_size,
        notes,
    )


def _by_row(
    bench: BatchBench,
    title: str,
    heading: Sequence[str],
    names: Callable[[Any], Iterable[str]],
    members: Callable[[Any], float | None],
    notes: Sequence[str],
) -> Table:
    """One line per row: its names, the time of a batch, its `members` a second, and how peers compare."""
    rows = [
        [
            *map(Cell, names(row)),
            *_batch(row, members(row)),
            *(ratio_cell(row.ratio.get(peer)) for peer in bench.peers),
        ]
        for row in bench.rows
    ]
    reasons = dict.fromkeys(f"{row.implementation}: {row.reason}" for row in bench.rows if row.reason)
    heading = [*heading, *(f"speedup\nvs {peer}" for peer in bench.peers)]
    return Table(heading, rows, title=title, notes=[*reasons, *notes, *machine(bench.environment)])


def _batch(row: Any, size: float | None) -> list[Cell]:
    """The time of a batch from that of one of its `size` members, and millions of these a second.

    Without a size the row's time is that of a whole batch.
    """
    if row.time_s is None:
        return [row_time(row), NOTHING]
    each, members = row.time_s, size or 1.0
    interval = units.interval(units.seconds, each.low * members, each.high * members)
    rate = f"{1e-6 / each.median:.3g} M" if size else "–"
    return [Cell(units.seconds(each.median * members), interval), Cell(rate)]


TABLES: dict[str, Callable[[Any], Table]] = {  # of all but single ops
    "collate": _collate,
    "sample": _sample,
    "negatives": _negatives,
    "conv": _layers,
}
