"""Ops, layers and batches beside their peers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnnbench.api import _options as options
from gnnbench.api._options import DataRoot, Dgl, Limit, Names, Numbers, Out
from gnnbench.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from gnnbench.kinds import ResultKind

OTHERS = ("collate", "sample", "negatives", "conv")  # benchmarks that are none of a single op
READ: dict[str, Callable[[Any], Any]] = {  # options that not all benchmarks have
    **dict.fromkeys(("graph", "backend"), str),
    **dict.fromkeys(("backward", "weighted"), bool),
    **dict.fromkeys(("widths", "heads", "batches", "fanouts"), options.numbers),
    **dict.fromkeys(("conv", "shapes", "against"), options.names),
}
NAMES = {"conv": "layers", "batches": "sizes"}  # of parameters of benchmarks, where they differ


def bench(
    op: Annotated[str, typer.Argument(metavar="OP")],
    graph: Annotated[str, typer.Option(metavar="SPEC")] = "",
    *,
    widths: Annotated[Numbers, typer.Option(metavar="N,N"), str] = "",
    conv: Annotated[Names, typer.Option(metavar="A,B"), str] = "",
    heads: Annotated[Numbers, typer.Option(metavar="N,N"), str] = "",
    shapes: Annotated[Names, typer.Option(metavar="S,S"), str] = "",
    backend: Annotated[str, typer.Option(metavar="NAME")] = "",
    against: Annotated[Names, typer.Option(metavar="A,B"), str] = "",
    batches: Annotated[Numbers, typer.Option(metavar="N,N"), str] = "",
    fanouts: Annotated[Numbers, typer.Option(metavar="N,N"), str] = "",
    backward: Annotated[bool, typer.Option("--backward")] = False,
    weighted: Annotated[bool, typer.Option("--weighted")] = False,
    dgl_python: Dgl = "",
    threads: Annotated[int, typer.Option(min=0)] = 0,
    data_root: DataRoot = None,
    memory_limit: Limit = "90%",
    out: Out = None,
    quiet: bool = False,
    check: bool = True,
) -> ResultKind:
    """Time an op beside its peers and the limits of this machine.

    Args:
        op: such as spmm, edge_softmax, gat_attention or linear; collate, which puts batches of graphs together;
            sample, which draws neighbourhoods; negatives, pairs that are no edges; or conv, layers of PyG; an
            unknown name lists all ops.
        graph: such as cora, ogbn-arxiv, synthetic:reddit:0.05 or graph.mtx; by default synthetic:reddit:0.01.
        widths: the channels of all heads together; by default 16,32,64,128,256, of layers of PyG 64.
        conv: layers of torch_geometric.nn, for conv: such as PNAConv,EdgeConv, or all.
        heads: numbers of heads, for ops with heads; by default 1.
        shapes: of linear, rows x inputs x outputs such as 820x300x600; of others without a graph likewise. By
            default those of all configurations.
        backend: whose kernels to time, such as cuda; by default isplib.
        against: peers: torch-csr, torch-scatter, pyg, pyg-compile, cusparse, dgl, or backends with kernels such as
            reference; isplib-bf16 is isplib in bfloat16; torch for layers. For collate: pyg, which is PyG's
            DataLoader, and pyg-list, the same with a list of graphs. For sample: dgl and pyg-lib. For negatives:
            pyg, pyg-dense and dgl. By default torch-csr,torch-scatter,dgl, or torch for layers.
        batches: batch sizes, for collate and sample, by default 64,256,1024; for negatives 65536,1048576.
        fanouts: in-edges of a node by hop, for sample; by default 15,10,5.
        backward: time the gradients too.
        weighted: run spmm and spmm_max with edge values.
        threads: threads for all kernels; 0 uses PyTorch's default.
        dgl_python, data_root, memory_limit, out, quiet, check: as in `reproduce`.

    Raises:
        ConfigError: a bad value.
        GnnbenchError: bad data, or `out` cannot be written.
        KeyboardInterrupt: Ctrl-C; what was measured is kept.
    """
    given = {name: value for name, value in locals().items() if value and name in READ}
    from gnnbench import benchmarks, datasets
    from gnnbench.benchmarks import collate, draws, layers
    from gnnbench.benchmarks.ops import OPS
    from gnnbench.kinds import bench as kinds
    from gnnbench.measure import environment

    if op not in (*OPS, *OTHERS):
        raise ConfigError(f"unknown op {op!r}{did_you_mean(op, [*OPS, *OTHERS])}")
    if op in OTHERS:
        others: dict[str, Callable[..., Any]] = {
            "collate": collate.bench,
            "conv": layers.bench,
            "sample": draws.sample,
            "negatives": draws.pairs,
        }
        measure = others[op]
        has = {"graph", *inspect.signature(measure).parameters}
    else:
        on = {"shapes"} if OPS[op].sizes else {"graph", "widths", "heads", "weighted"}
        measure, has = benchmarks.bench, {"backend", "against", "backward"} | on
    if wrong := [name for name in given if NAMES.get(name, name) not in has]:
        raise ConfigError(f"bench {op} has no --{', --'.join(wrong)}")
    spec = given.pop("graph", "synthetic:reddit:0.01")
    chosen = {NAMES.get(name, name): READ[name](value) for name, value in given.items()}
    kind: Any = kinds.OTHERS.get(op, kinds.Bench)
    roots, folder = datasets.roots(data_root), kind.folder(out, f"{op}-bench")
    with options.threads_kept():
        environment.use_threads(threads)
        grid = None if op in OTHERS else benchmarks.Grid(op, **chosen)
        dataset: Any = None
        if "graph" in has:
            config = options.load(None, None if op == "collate" else options.BARE, spec).dataset
            dataset = datasets.load(config, roots)
            whole = op == "collate" or (op == "sample" and isinstance(dataset, datasets.TypedDataset))
            dataset = dataset if whole else datasets.single(dataset)
        if grid:
            measure = partial(measure, grid, cache=roots.cache, dgl_python=dgl_python)
        else:
            measure = partial(measure, **chosen, **({"dgl_python": dgl_python} if "dgl_python" in has else {}))
        with kind.watched(quiet) as hear:
            record = measure(dataset, out=folder, memory_limit=memory_limit, on_event=hear)
    return options.ended(kind.of(record, folder / "bench.json"), check)
