"""How far the choices of the CPU kernels are from the best candidate: their regret, and peers beside them.

    python tests/measure/regret.py --out FILE [--graphs SPEC,...] [--widths N,...] [--peers] [--limit REGRET]

On each graph it times sum, weighted sum and max by every candidate that a tuner may try, then the choice against
the best of them on samples of their own, so that noise does not choose the best. FILE holds the medians of all
candidates too. Cells that are in FILE already are not measured again. Prints a table of regrets, their median and
the worst, and fails where the worst is above the limit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from gnnbench import benchmarks, datasets, stats
from gnnbench.api._options import BARE, load
from gnnbench.backends.isplib import IsplibKernels
from gnnbench.benchmarks.records import Row
from gnnbench.errors import GnnbenchError
from gnnbench.graph import Graph
from gnnbench.measure import clock, environment
from gnnbench.measure.rounds import Budget, Timed, interleaved, timed
from gnnbench.ops.kernels import Choice, choice_key
from gnnbench.results import files
from gnnbench.results.schema import Ratio, Record

GRAPHS = (
    "cora",
    "citeseer",
    "pubmed",
    "amazon-computers",
    "coauthor-cs",
    "blogcatalog",
    "tolokers",
    "ogbn-arxiv",
    "synthetic:reddit:0.05",
    "synthetic:reddit:0.25",
    "synthetic:ogbn-products:0.1",
    "synthetic:ogbn-proteins:0.1",
)
WIDTHS = (16, 32, 64, 128, 256)
OPS = {"sum": ("spmm", False), "weighted": ("spmm", True), "max": ("spmm_max", False)}
SURVEY = Budget(rounds=3, least_s=0.03, most_s=2.0)
DUEL = Budget(rounds=7, least_s=0.2, most_s=8.0)
PEERS = ("torch-csr", "dgl")
CHOSEN, BEST = "chosen", "best"


class Cell(Record):
    """One op on one graph at one width."""

    graph: str
    nodes: int
    edges: int
    op: str
    width: int
    chosen: Choice
    best: Choice
    regret: Ratio = Field(description="time of the choice over that of the best candidate")
    candidates: list[tuple[Choice, float]] = Field(description="median seconds of a short survey")


class Regrets(Record):
    """Every cell, and peers on the same graphs."""

    environment: dict[str, Any]
    cells: list[Cell] = Field([])
    peers: list[Row] = Field([], description="our choice, DGL and torch CSR, each in a run of its own op")


def measure(kernels: IsplibKernels, graph: Graph, label: str, name: str, width: int) -> Cell:
    op, weighted = OPS[name]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(graph.num_cols, width, generator=generator)
    value = torch.rand(graph.num_edges, generator=generator) if weighted else None
    key = choice_key(op, width, x.dtype)

    def call(choice: Choice) -> None:
        graph.cache[key] = choice
        kernels.spmm(graph, x, value, "sum") if op == "spmm" else kernels.spmm_max(graph, x, value, "max")

    def of(choice: Choice) -> Timed:
        call(choice)
        return partial(timed, partial(call, choice), clock.cpu)

    def fail(_: str, error: Exception) -> None:
        raise error

    choices = kernels.choices(op, graph, width, x.dtype)
    surveyed = interleaved({str(i): of(choice) for i, choice in enumerate(choices)}, SURVEY, fail)
    medians = [stats.median_interval(surveyed[str(i)]).value for i in range(len(choices))]
    best = choices[medians.index(min(medians))]
    times = interleaved({CHOSEN: of(choices[0]), BEST: of(best)}, DUEL, fail)
    ratio = (
        stats.ratio_interval(times[CHOSEN], times[BEST]) if best != choices[0] else stats.Interval(1.0, 1.0, 1.0)
    )
    del graph.cache[key]
    return Cell(
        graph=label,
        nodes=graph.num_rows,
        edges=graph.num_edges,
        op=name,
        width=width,
        chosen=choices[0],
        best=best,
        regret=Ratio(ratio=ratio.value, low=ratio.low, high=ratio.high),
        candidates=[*zip(choices, medians, strict=True)],
    )


def compared(dataset: Any, options: argparse.Namespace) -> list[Row]:
    """Peers and our choice on sums and maxima, unweighted for DGL and weighted for torch CSR."""
    rows: list[Row] = []
    for op, weighted, peer in (("spmm", False, "dgl"), ("spmm_max", False, "dgl"), ("spmm", True, "torch-csr")):
        if peer == "dgl" and not options.dgl_python:
            continue
        grid = benchmarks.Grid(op, options.widths, (1,), (peer,), False, weighted)
        record = benchmarks.bench(
            grid,
            dataset,
            out=options.out.with_suffix("") / f"{dataset.label}_{op}_{peer}".replace(":", "_"),
            cache=datasets.roots().cache,
            dgl_python=options.dgl_python,
        )
        rows += [row for row in record.rows if row.implementation in ("isplib", peer)]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--graphs", type=lambda text: text.split(","), default=[*GRAPHS])
    parser.add_argument("--widths", type=lambda text: [*map(int, text.split(","))], default=[*WIDTHS])
    parser.add_argument("--dgl-python", default="")
    parser.add_argument("--peers", action="store_true", help="torch CSR and, with --dgl-python, DGL too")
    parser.add_argument("--limit", type=float, default=1.15)
    options = parser.parse_args()
    kernels = IsplibKernels()
    record = Regrets(environment=environment.describe())
    if options.out.exists():
        record = files.load(Regrets, options.out)
    for spec in options.graphs:
        dataset = datasets.single(datasets.load(load(None, BARE, spec).dataset, datasets.roots()))
        graph = dataset.graph(torch.device("cpu"), kernels)
        for name in OPS:
            for width in options.widths:
                if any((cell.graph, cell.op, cell.width) == (dataset.label, name, width) for cell in record.cells):
                    continue
                cell = measure(kernels, graph, dataset.label, name, width)
                record.cells.append(cell)
                regret = f"{cell.regret.ratio:.2f} ({cell.regret.low:.2f}–{cell.regret.high:.2f})"
                print(f"{cell.graph:28} {name:9} {width:4} {regret:18} {cell.chosen} | {cell.best}", flush=True)
                files.save_json(record, options.out)
        if options.peers and not any(row.graph == dataset.label.partition(" (")[0] for row in record.peers):
            record.peers += compared(dataset, options)
            files.save_json(record, options.out)
    regrets = [cell.regret.ratio for cell in record.cells]
    print(f"{len(regrets)} cells: median {statistics.median(regrets):.3f}, worst {max(regrets):.3f}")
    if max(regrets) > options.limit:
        sys.exit(f"the worst regret is above {options.limit}")


if __name__ == "__main__":
    try:
        main()
    except GnnbenchError as error:
        sys.exit(str(error))
