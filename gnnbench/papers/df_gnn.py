"""DF-GNN (arXiv 2411.16127, LoG 2024): fused attention on batches of small graphs, on GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from gnnbench import datasets
from gnnbench.comparison.record import LOADER
from gnnbench.papers._cells import Cell, Ops, Training
from gnnbench.papers._records import Claim, Paper, Scale

ABSTRACT = "abstract"
BLOG = "a summary of the paper's figures (seed 002)"

PAPER = Paper(
    name="df-gnn",
    title="DF-GNN (arXiv 2411.16127, LoG 2024)",
    machine="a model that our sources do not name",
    published=(
        "kernels: mean over all samples, projections excluded; epochs: mean over all but the first, without the "
        "time of PyG's loader, as the paper collects batches beforehand; the time to make ours counts, as it "
        "includes their sorted rows, which the paper counts"
    ),
    corrected=(
        "kernels: median over interleaved rounds, results checked against float64 first; epochs: median of whole "
        "epochs over all training graphs, loading included, both sides training the same model after the parity "
        "gate"
    ),
    notes=[
        "Ours: backend `isplib`, kernels for CPUs, against DGL and PyG on the same CPU; the paper's run on GPUs",
        "Epochs are published against DGL, which is not trained here. PyG stands in for it: with its own loader "
        "(`pyg:loader=pyg`) on batches; and with our batches where these and full graphs are taken together",
        "AGNN has no kernel of its own: it is dot_attention with the same normalised features as query and key. "
        "The model is the paper's form of it, with a linear layer and without temperature and self-loops",
        "The sources do not say which mean the paper's averages are; ours are geometric",
        "Kernels run on one batch, where the paper takes 20",
        "2.8x with super nodes is taken as that of kernels, as the authors' kernels for them have no backward",
        "Models have batch norm and residual connections; features are those of the graphs, where the paper's are "
        "random, or cut off after 64 columns",
    ],
)

AVERAGE = partial(Claim, source=BLOG, kind="blog", over="mean", hardware="GPU")
FORWARD = partial(AVERAGE, phase="forward", baseline="dgl")
CLAIMS = [
    FORWARD(name="attention kernels", value=7.0, cells="kernels-", source=ABSTRACT, kind="paper", over="max"),
    FORWARD(name="attention kernels on batches", value=3.7, cells="kernels-batches-"),
    *(
        FORWARD(
            name=f"attention kernels on batches, {name}",
            value=value,
            cells="kernels-batches-",
            ours=name,
            not_run=f"{name} runs on NVIDIA GPUs only",
        )
        for name, value in (("cuGraph", 2.4), ("dgNN", 1.7))
    ),
    FORWARD(name="attention kernels with super nodes", value=2.8, cells="kernels-super-"),
    AVERAGE(name="epoch of batches", value=1.84, cells="epochs-batches-", baseline=LOADER),
    FORWARD(name="epoch of batches, forward alone", value=3.2, cells="epochs-batches-", baseline=LOADER),
    AVERAGE(name="epoch of full graphs", value=2.6, cells="epochs-full-", baseline="pyg"),
    AVERAGE(name="epoch", value=2.16, cells="epochs-", baseline="pyg", source=ABSTRACT, kind="paper"),
]

PEERS = ["dgl", "pyg"]
OPS = ("dot_attention", "gat_attention")
SWEPT = "pattern"
SETS = {"pattern": 0.1, "cluster": 0.1, "mnist": 0.02, "cifar10": 0.02, "pascalvoc-sp": 0.1, "coco-sp": 0.01}
EXTRA = {"ogbn-proteins": {"random_features": 8}}  # which has none
MODELS: dict[str, dict[str, Any]] = {
    "gt": {"name": "transformer", "heads": 1, "root_weight": False},
    "agnn": {"name": "agnn", "projected": True},
    "gat": {"name": "gat", "heads": 1},
}
SHARED = {"layers": 8, "hidden": 64, "dropout": 0.0, "norm": "batch", "residual": True}
OF_GRAPHS = ("mnist", "cifar10")  # whose targets are those of whole graphs


@dataclass(frozen=True)
class Grid:
    """How much of the paper's grid is measured."""

    sets: dict[str, float]  # of graphs -> the share that is generated, which holds graphs enough for a batch
    batch: int  # of kernels, as is the width
    batches: tuple[int, ...]  # that these are also varied over, on PATTERN, as over the widths
    supers: tuple[str, ...]  # graphs with super nodes
    trained: dict[str, float]  # sets to train on, with their shares
    epochs: tuple[int, int]  # on batches, and on full graphs
    rounds: int
    ops: tuple[str, ...] = OPS
    models: tuple[str, ...] = (*MODELS,)
    width: int = 128
    widths: tuple[int, ...] = (16, 32, 64, 256)
    full: tuple[str, ...] = ("cora", "citeseer", "pubmed")  # graphs that are trained on whole


GRIDS: dict[Scale, Grid] = {
    "demo": Grid(
        ops=("dot_attention",),
        models=("gt",),
        sets={"pattern": 0.01, "mnist": 0.001, "pascalvoc-sp": 0.003},
        batch=32,
        width=32,
        widths=(16, 64),
        batches=(128,),
        full=("synthetic:cora",),
        supers=("synthetic:reddit:0.005",),
        trained={"pattern": 0.002},
        epochs=(3, 5),
        rounds=1,
    ),
    "small": Grid(
        sets=SETS,
        batch=256,
        batches=(64, 1024),
        supers=("synthetic:reddit:0.05",),
        trained={"pattern": 0.03, "mnist": 0.01, "pascalvoc-sp": 0.02},
        epochs=(4, 20),
        rounds=2,
    ),
    "paper": Grid(
        sets={**SETS, SWEPT: 0.2},
        batch=1024,
        batches=(64, 128, 256, 512, 2048),
        supers=("reddit", "ogbn-proteins"),
        trained=SETS,
        epochs=(20, 100),
        rounds=3,
    ),
}


def cells(scale: Scale) -> list[Cell]:
    """Kernels on batches, over widths and batch sizes and with super nodes; then epochs."""
    return [*_kernels(GRIDS[scale]), *_epochs(GRIDS[scale])]


def _kernels(grid: Grid) -> Iterator[Ops]:
    swept = f"synthetic:{SWEPT}:{grid.sets[SWEPT]}"
    for op in grid.ops:
        for name, share in grid.sets.items():
            yield _ops("batches", op, f"synthetic:{name}:{share}", [grid.width], grid.batch)
        yield _ops("widths", op, swept, [*grid.widths], grid.batch)
        for size in grid.batches:
            yield _ops(f"sizes-{size}", op, swept, [grid.width], size)
        for spec in grid.supers:
            yield _ops("super", op, spec, [grid.width])


def _ops(group: str, op: str, spec: str, widths: list[int], batch: int = 0) -> Ops:
    return Ops(
        key=f"kernels-{group}-{op}-{_named(spec)}",
        op=op,
        dataset={**datasets.parse(spec), **EXTRA.get(spec, {})},
        batch=batch,
        widths=widths,
        against=PEERS,
        protocol="mean",
    )


def _epochs(grid: Grid) -> Iterator[Training]:
    """Train on batches of the sets of graphs, and on full graphs."""
    sets = [(f"synthetic:{name}:{share}", name) for name, share in grid.trained.items()]
    for group, specs in (("batches", sets), ("full", [(spec, "") for spec in grid.full])):
        batched = group == "batches"
        for op, (spec, name) in product(grid.models, specs):
            yield Training(
                key=f"epochs-{group}-{op}-{_named(spec)}",
                op=op,
                dataset=datasets.parse(spec),
                model={**MODELS[op], **SHARED, "readout": "mean" if name in OF_GRAPHS else "none"},
                batch={"kind": "graphs", "size": 64} if batched else {},
                train={"epochs": grid.epochs[not batched], "lr": 1e-3, "eval_every": 1000},
                backends=[*[LOADER] * batched, "pyg", "isplib"],
                rounds=grid.rounds,
                phases=["epoch", "forward"] if batched else ["epoch"],
                protocol="collected",
            )


def _named(spec: str) -> str:
    return spec.removeprefix("synthetic:").replace(":", "-")
