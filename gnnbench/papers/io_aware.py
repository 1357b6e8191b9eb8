"""On Efficient Scaling of GNNs via IO-Aware Layers Implementations (ICML 2026): fused layers on GPUs."""

from __future__ import annotations

from typing import Any

from gnnbench import datasets
from gnnbench.papers._cells import Cell, Ops
from gnnbench.papers._records import Claim, Paper, Scale

ABSTRACT = "abstract and ICML page 60846"
GATV2_LOG = "dev/fvelikon/gat_v2_warp_parallel/gatv2_fwd_bwd_logs in the authors' repository"
MIN_LOG = "early log of min_aggr in the authors' repository"

PAPER = Paper(
    name="io-aware",
    title="On Efficient Scaling of GNNs via IO-Aware Layers Implementations (arXiv 2605.31500, ICML 2026)",
    machine="NVIDIA A100-SXM4-80GB",
    published=(
        "time of the first sample after warm-up, as 5 ms of repetition amount to for slow kernels; memory of the "
        "whole process in one call, graph and inputs included; forward without what training keeps"
    ),
    corrected=(
        "median over interleaved rounds, results checked against float64 first; memory that one call takes above "
        "what was held before it, a backward counting with its forward"
    ),
    notes=[
        "Ours: backend `isplib`, kernels for CPUs, against DGL on the same CPU; the paper's kernels run on GPUs",
        "The paper does not state whether its headline factors are of the forward or of both directions; they are "
        "compared with the forward",
        "The paper's factors are of its best tuned configuration, and its widths are those of one head for GATv2; "
        "here widths count all heads together",
        "Self-loops are not added, features are random as in the paper",
    ],
)


def _claims(
    name: str, op: str, source: str = ABSTRACT, kind: Any = "paper", quantity: Any = "time", **values: float
) -> list[Claim]:
    """`values` by `max` and `median`, or by these after a phase, as in `backward_median`."""
    shared = {"source": source, "kind": kind, "quantity": quantity, "op": op, "baseline": "dgl", "hardware": "GPU"}
    claims = []
    for key, value in values.items():
        phase, _, over = key.rpartition("_")
        phase = phase or "forward"
        named = f"{name}, {phase}" if quantity == "time" else f"{name}, memory of the {phase}"
        claims.append(
            Claim.model_validate({"name": named, "value": value, "over": over, "phase": phase, **shared})
        )
    return claims


CLAIMS = [
    *_claims("graph transformer", "dot_attention", max=3.9, median=1.6),
    Claim(
        name="graph transformer, block-sparse on tensor cores",
        value=7.3,
        source=ABSTRACT,
        kind="paper",
        op="dot_attention",
        phase="forward",
        baseline="dgl",
        hardware="GPU",
        not_run="it is a kernel for the tensor cores of a GPU, which has no counterpart on a CPU",
    ),
    *_claims("GATv2", "gatv2_attention", max=8.5, median=2.0),
    *_claims("GATv2", "gatv2_attention", quantity="memory", max=76, median=6),
    *_claims("min/max", "spmm_max", max=10, median=2.6),
    *_claims("SpMM, against DGL's", "spmm", max=8),
    *_claims("GATv2", "gatv2_attention", GATV2_LOG, "log", median=2.46, backward_median=0.59),
    *_claims("GATv2", "gatv2_attention", GATV2_LOG, "log", "memory", max=106, median=3.9),
    *_claims("min/max", "spmm_max", MIN_LOG, "log", median=2.29, backward_median=1.21),
]

GRAPHS: dict[Scale, list[str]] = {
    "demo": ["synthetic:reddit:0.005", "synthetic:ogbn-arxiv:0.1"],
    "small": ["cora", "pubmed", "tolokers", "amazon-computers", "ogbn-arxiv"],
    "paper": ["cora", "citeseer", "pubmed", "tolokers", "ogbn-arxiv", "ogbn-proteins", "ogbn-products"],
}
DEMO = ["none", "rcm"], [32, 64], [1, 4]  # orders of nodes, widths, and numbers of heads
WHOLE = ["none", "degree", "rcm", "metis"], [64, 128, 256, 512], [1, 2, 4, 8]
DRAWN = {"random_features": 8}
OPS: dict[str, list[str]] = {  # with their peers; DGL's is the paper's baseline
    "spmm": ["dgl", "torch-csr", "torch-scatter"],
    "spmm_max": ["dgl", "torch-scatter"],
    "gatv2_attention": ["dgl", "pyg"],
    "dot_attention": ["dgl", "pyg"],
}


def cells(scale: Scale) -> list[Cell]:
    """For every op, every graph in every order of its nodes."""
    orders, widths, heads = DEMO if scale == "demo" else WHOLE
    return [
        Ops(
            key=f"{op}-{spec.replace(':', '-')}-{order}",
            op=op,
            # Ops draw inputs of their own, so that those of the graph may be missing.
            dataset={**datasets.parse(spec), "reorder": order, **(DRAWN if spec.startswith("ogbn") else {})},
            widths=widths,
            heads=heads if op.endswith("_attention") else [1],
            against=peers,
        )
        for op, peers in OPS.items()
        for spec in GRAPHS[scale]
        for order in orders
    ]
