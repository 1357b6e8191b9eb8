"""The verbs that look at single ops."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from gnnbench.options import DataRoot, Json, Limit, Markdown, Out, Plot, Quiet, load, names, numbers, show, watched


def bench(
    op: Annotated[
        str, typer.Argument(metavar="OP", help="spmm, spmm_max, sddmm, edge_softmax, gat, gatv2 or dot.")
    ],
    graph: Annotated[
        str, typer.Option(metavar="SPEC", help="Such as cora, ogbn-arxiv, synthetic:reddit:0.05, graph.mtx.")
    ] = "synthetic:reddit:0.01",
    widths: Annotated[str, typer.Option(metavar="N,N", help="Channels of all heads together.")] = (
        "16,32,64,128,256"
    ),
    heads: Annotated[str, typer.Option(metavar="N,N", help="Heads, for ops that have any.")] = "1",
    against: Annotated[
        str, typer.Option(metavar="A,B", help="Peers: torch-csr, torch-scatter, pyg, dgl, reference.")
    ] = "torch-csr,torch-scatter,dgl",
    backward: Annotated[bool, typer.Option("--backward", help="Time the gradients too.")] = False,
    weighted: Annotated[bool, typer.Option("--weighted", help="Give edges of spmm and spmm_max values.")] = False,
    dgl_python: Annotated[
        str,
        typer.Option(metavar="PATH", envvar="GNNBENCH_DGL_PYTHON", help="The Python interpreter that has DGL."),
    ] = "",
    threads: Annotated[int, typer.Option(min=0, help="Of all kernels; 0: as many as PyTorch chooses.")] = 0,
    data_root: DataRoot = None,
    memory_limit: Limit = "90%",
    out: Out = None,
    plot: Plot = None,
    as_json: Json = False,
    quiet: Quiet = False,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write every row as CSV too.")] = None,
    markdown: Markdown = None,
) -> None:
    """Time one op against its peers and this machine."""
    import torch

    from gnnbench import bench as benchmark
    from gnnbench import datasets, measure, plots, results
    from gnnbench.report import bench as report
    from gnnbench.report import live, tables

    grid = benchmark.Grid(op, numbers(widths), numbers(heads), names(against), backward, weighted)
    if plot:
        plots.check(plot)
    roots = datasets.roots(data_root)
    if threads:
        torch.set_num_threads(threads)
    dataset = datasets.load(load(None, None, graph).dataset, roots)
    out = out or results.new_folder(f"{op}-bench")
    view = live.BenchView(tables.console(sys.stderr)) if watched(quiet) else None
    with view or nullcontext():
        found = benchmark.bench(
            grid,
            dataset,
            out=out,
            cache=roots.cache,
            now=measure.cpu_clock,
            dgl_python=dgl_python,
            memory_limit=memory_limit,
            on_event=view or (lambda *_: None),
        )
    if csv:
        results.save_text(tables.to_csv(report.records(found)), csv)
    if plot:
        plots.save(report.panels(found), report.title(found), plot)
    show(report.table(found, out), found.model_dump_json(indent=1), as_json, quiet, markdown)
    if found.status == "interrupted":
        print(f"gnnbench: stopped by Ctrl-C; what was measured is in {out}", file=sys.stderr)
        raise typer.Exit(130)
    raise typer.Exit(found.exit_code)
