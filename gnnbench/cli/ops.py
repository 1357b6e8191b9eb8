"""The verbs about single ops."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnnbench.api._configs import BARE, load, names
from gnnbench.cli.options import (
    Csv,
    DataRoot,
    Json,
    Latex,
    Limit,
    Markdown,
    Out,
    Plot,
    Quiet,
    finish,
    numbers,
    show,
)
from gnnbench.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from gnnbench.report.tables import Table


# Options that some have and others have not.
OF_OPS = ("widths", "heads", "shapes", "backward", "weighted", "plot")
NOT_OF: dict[str, tuple[str, ...]] = {
    "collate": (*OF_OPS, "dgl_python", "fanouts"),
    "sample": (*OF_OPS, "backend"),
    "conv": (*OF_OPS[1:], "against", "dgl_python", "batches", "fanouts"),
}
OF_BATCHES = ("batches", "fanouts")
OF_GRAPHS = ("graph", "widths", "heads", "weighted", "dgl_python")


def bench(
    ctx: typer.Context,
    op: Annotated[
        str,
        typer.Argument(
            metavar="OP",
            help="Such as spmm, edge_softmax, gat_attention or linear; collate, which puts batches of graphs "
            "together; sample, which draws neighbourhoods; or conv, layers of PyG; an unknown name lists all ops.",
        ),
    ],
    graph: Annotated[
        str, typer.Option(metavar="SPEC", help="Such as cora, ogbn-arxiv, synthetic:reddit:0.05, graph.mtx.")
    ] = "synthetic:reddit:0.01",
    widths: Annotated[str, typer.Option(metavar="N,N", help="Widths: the channels of all heads together.")] = (
        "16,32,64,128,256"
    ),
    conv: Annotated[
        str,
        typer.Option(
            metavar="A,B", help="Layers of torch_geometric.nn, for conv: such as PNAConv,EdgeConv, or all."
        ),
    ] = "",
    heads: Annotated[str, typer.Option(metavar="N,N", help="Numbers of heads, for ops with heads.")] = "1",
    shapes: Annotated[
        str,
        typer.Option(
            metavar="S,S",
            help="Of linear, rows x inputs x outputs such as 820x300x600; of batch_norm, dropout and "
            "embedding_sum likewise, without a graph. By default those of all configurations.",
        ),
    ] = "",
    backend: Annotated[
        str, typer.Option(metavar="NAME", help="Whose kernels to time, such as isplib or cuda.")
    ] = "isplib",
    against: Annotated[
        str,
        typer.Option(
            metavar="A,B",
            help="Peers: torch-csr, torch-scatter, pyg, pyg-compile, cusparse, dgl, or backends with kernels such "
            "as reference; isplib-bf16 is isplib in bfloat16; torch for layers. For collate: pyg, which is PyG's "
            "DataLoader, and pyg-list, the same with a list of graphs. For sample: dgl and pyg-lib. By default "
            "torch-csr,torch-scatter,dgl, or torch for layers.",
        ),
    ] = "",
    batches: Annotated[
        str, typer.Option(metavar="N,N", help="Batch sizes, for collate and sample.")
    ] = "64,256,1024",
    fanouts: Annotated[
        str, typer.Option(metavar="N,N", help="In-edges of a node by hop, for sample.")
    ] = "15,10,5",
    backward: Annotated[bool, typer.Option("--backward", help="Time the gradients too.")] = False,
    weighted: Annotated[bool, typer.Option("--weighted", help="Run spmm and spmm_max with edge values.")] = False,
    dgl_python: Annotated[
        str,
        typer.Option(metavar="PATH", envvar="GNNBENCH_DGL_PYTHON", help="Python interpreter with DGL installed."),
    ] = "",
    threads: Annotated[int, typer.Option(min=0, help="Threads for all kernels; 0 uses PyTorch's default.")] = 0,
    data_root: DataRoot = None,
    memory_limit: Limit = "90%",
    out: Out = None,
    plot: Plot = None,
    as_json: Json = False,
    quiet: Quiet = False,
    csv: Csv = None,
    markdown: Markdown = None,
    latex: Latex = None,
) -> None:
    """Time an op beside its peers and the limits of this machine."""
    given = {name for name in ctx.params if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"}
    from gnnbench import api
    from gnnbench.benchmarks.ops import OPS
    from gnnbench.report import bench as report
    from gnnbench.report import plots, tables
    from gnnbench.results import files

    if op not in (*OPS, *NOT_OF):
        raise ConfigError(f"unknown op {op!r}{did_you_mean(op, [*OPS, *NOT_OF])}")
    lacks = NOT_OF.get(op) or (*OF_BATCHES, *(OF_GRAPHS if OPS[op].sizes else ["shapes"]))
    lacks = lacks if op == "conv" else (*lacks, "conv")
    if wrong := [name for name in lacks if name in given]:
        raise ConfigError(f"bench {op} has no --{', --'.join(wrong).replace('_', '-')}")
    sizes, hops = numbers(batches), numbers(fanouts)
    if plot:
        plots.check(plot)
    record: Any
    if op in NOT_OF:
        options: dict[str, Any] = {"memory_limit": memory_limit}
        options |= {"against": names(against)} if "against" in given else {}
        options |= {"fanouts": hops, "dgl_python": dgl_python} if op == "sample" else {"backend": backend}
        layers = {"layers": names(conv), "widths": numbers(widths) if "widths" in given else (64,)}
        options |= layers if op == "conv" else {"sizes": sizes}
        out = out or files.new_folder(f"{op}-bench")
        record, table = _others(op, graph, options | {"out": out}, threads, data_root, quiet)
    else:
        record = api.bench(
            op,
            graph,
            widths=numbers(widths),
            heads=numbers(heads),
            shapes=shapes,
            backend=backend,
            against=against,
            backward=backward,
            weighted=weighted,
            dgl_python=dgl_python,
            threads=threads,
            data_root=data_root,
            memory_limit=memory_limit,
            out=out,
            quiet=quiet,
            check=False,
        )
        out, table = record.path.parent, report.table(record)
    if csv:
        files.save_text(tables.to_csv(tables.records(record.rows)), csv)
    if plot:
        plots.save(report.panels(record), report.title(record), plot)
    show(table, record, as_json, quiet, markdown, latex, saved=out / "bench.json")
    finish(record, f"the measurements so far are in {out}")


def _others(
    op: str, graph: str, options: dict[str, Any], threads: int, data_root: Path | None, quiet: bool
) -> tuple[Any, Table]:
    """Measure batches or layers for `bench`; returns the record and its table."""
    from gnnbench import datasets, registry
    from gnnbench.measure import clock, environment
    from gnnbench.report import live

    environment.use_threads(threads)
    roots = datasets.roots(data_root)
    dataset: Any = datasets.load(load(None, None if op == "collate" else BARE, graph).dataset, roots)
    if op != "collate":
        dataset = datasets.single(dataset)
    elif not isinstance(dataset, datasets.GraphsDataset):
        raise ConfigError(f"{graph} is a single graph; give a dataset of many graphs, such as --graph ogbg-molhiv")
    module = "layers" if op == "conv" else op
    benchmark, report = registry.find("benchmarks", module), registry.find("report", module)
    view = live.View.watched(quiet)
    record = benchmark.bench(dataset, now=clock.cpu, on_event=view.say if view else lambda _: None, **options)
    return record, report.table(record)


def prepared(
    target: Annotated[str, typer.Argument()] = "",
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Delete all tuned choices.")] = False,
    data_root: DataRoot = None,
    plot: Plot = None,
) -> bool:
    """Do what `tune` does before it tunes a graph; True if there is none."""
    from gnnbench import datasets, units
    from gnnbench.report import plots
    from gnnbench.tuning import store

    if plot:
        plots.check(plot)
    if clear:
        cache = datasets.roots(data_root).cache
        print(f"removed {units.counted(store.clear(cache), 'file')} of tuned choices from {cache}")
    return clear and not target
