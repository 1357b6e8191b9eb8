"""Kernels that are wrong on purpose, and the graph and path on which the parity gate must notice."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gnnbench import config, convs
from gnnbench.backends import base, pyg
from gnnbench.comparison.parity import BackendParity, steps
from gnnbench.comparison.parity.judge import Snapshot, judge
from gnnbench.config import BackendConfig
from gnnbench.datasets import NodeDataset
from gnnbench.graph import Compressed, Graph, rows_of
from gnnbench.ops.dropout import Dropout
from gnnbench.ops.families import Attention
from gnnbench.ops.kernels import Kernels

NODES, HUB, CLASSES = 900, 17, 5
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"name": "gcn"},
    "gcn with batch norm": {"name": "gcn", "norm": "batch", "layers": 3},
    "sage mean": {"name": "sage", "aggr": "mean"},
    "sage sum": {"name": "sage", "aggr": "sum"},
    "sage max": {"name": "sage", "aggr": "max"},
    "gin": {"name": "gin"},
    "gin deep": {"name": "gin", "layers": 3, "norm": "batch"},
    "gat": {"name": "gat", "heads": 2},
    "gatv2": {"name": "gatv2", "heads": 2},
    "transformer": {"name": "transformer", "heads": 2},
    "agnn": {"name": "agnn"},
}


@functools.cache
def dataset() -> NodeDataset:
    """Directed, with a hub of 700 in-edges, loops, duplicates, isolated nodes, and edges into the last node."""
    generator = torch.Generator().manual_seed(3)

    def drawn(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    edges = torch.cat(
        [drawn(20, NODES, 2, 5000), torch.stack([drawn(20, NODES, 700), torch.full((700,), HUB)])], 1
    )
    loops = drawn(20, NODES, 30).repeat(2, 1)
    into_last = torch.stack([drawn(20, NODES, 5), torch.full((5,), NODES - 1)])
    edges = torch.cat([edges, loops, edges[:, :200], into_last], 1)
    x = torch.randn(NODES, 40, generator=generator)
    y = drawn(0, CLASSES, NODES)
    split = torch.arange(NODES) % 5
    masks = (split < 3, split == 3, split == 4)
    return NodeDataset("zoo", edges, x, y, *masks, CLASSES)


@functools.cache
def loud() -> NodeDataset:
    """Repeat it with scores that are too large for exp."""
    return replace(dataset(), x=dataset().x * 1000)


@functools.cache
def beside_a_hub() -> NodeDataset:
    """Positive features, and a node of 18 000 in-edges among 2000 that have four."""
    generator = torch.Generator().manual_seed(0)
    nodes, into_hub = 2000, 18_000
    edges = torch.randint(nodes, (2, 8000), generator=generator)
    hub = torch.stack([torch.randint(nodes, (into_hub,), generator=generator), torch.full((into_hub,), HUB)])
    split = torch.arange(nodes) % 5
    return replace(
        dataset(),
        edge_index=torch.cat([edges, hub], 1),
        x=torch.rand(nodes, 40, generator=generator),
        y=torch.randint(CLASSES, (nodes,), generator=generator),
        train_mask=split < 3,
        val_mask=split == 3,
        test_mask=split == 4,
    )


def run_config(model: str, attention_dropout: float = 0.0, dropout: float = 0.5) -> Any:
    section = {"hidden": 24, "dropout": dropout, **MODELS[model]}
    if attention_dropout:
        section["attention_dropout"] = attention_dropout
    return config.validate({"dataset": {"source": "synthetic", "preset": "cora"}, "model": section}, "test")


@functools.cache
def reference(model: str, data: Callable[[], NodeDataset] = dataset) -> Snapshot:
    backend = pyg.Backend(BackendConfig())
    snapshot = steps.computed(run_config(model), backend, data(), as_reference=True)
    snapshot.exact = steps.in_float64(run_config(model), backend, data()).tensors
    return snapshot


class Bound(base.Backend):
    """Binds given kernels as `reference` and `isplib` bind theirs; `spoil` may then change the model."""

    name = "bound"

    def __init__(self, kernels: Kernels, spoil: Callable[[torch.nn.Module], None] = lambda _: None) -> None:
        self.kernels = kernels
        self.spoil = spoil

    def prepare(self, model: torch.nn.Module, dataset: NodeDataset) -> base.Prepared:
        bindings = convs.bind(model, self.kernels, transform_first=True, fold_norm=True)
        graph = Graph.from_edge_index(dataset.edge_index, dataset.num_nodes, layout=self.kernels)
        convs.warm(model, graph)
        self.spoil(model)
        return base.Prepared(graph, bindings)


def verdict(model: str, backend: base.Backend, data: Callable[[], NodeDataset] = dataset) -> BackendParity:
    found = steps.computed(run_config(model), backend, data(), as_reference=False)
    return judge(found, reference(model, data))


def wrong(**methods: Callable[..., Any]) -> base.Backend:
    """Kernels with these methods instead of their own."""
    return Bound(type("Wrong", (Kernels,), methods)())


def backward_of(change: Callable[[Graph, Tensor, Tensor], Tensor]) -> base.Backend:
    """Every spmm on a transpose is `change(graph, x, right result)`; their forward is right."""
    transposes: list[Graph] = []

    def spmm(kernels: Kernels, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        out = Kernels.spmm(kernels, graph, x, value, reduce)
        if any(graph is transpose for transpose in transposes):
            return change(graph, x, out)
        transposes.append(graph.transpose)
        return out

    return wrong(spmm=spmm)


def divided_by_one_more(graph: Graph, x: Tensor, out: Tensor) -> Tensor:
    degree = graph.transpose.degree.clamp(min=1).unsqueeze(1)
    return Kernels().spmm(graph, x * degree / (degree + 1), None, "sum")


def spmm_of(change: Callable[[Graph, Tensor, Tensor], Tensor]) -> base.Backend:
    """Every spmm is `change(graph, x, right result)`."""
    return wrong(spmm=lambda kernels, graph, x, *how: change(graph, x, Kernels.spmm(kernels, graph, x, *how)))


def edges_of(kept: Callable[[Graph], Tensor]) -> base.Backend:
    """Every spmm leaves out the edges where `kept` is False."""

    def spmm(kernels: Kernels, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        rows, cols = graph.row[kept(graph)], graph.col[kept(graph)].long()
        left = Graph.from_edge_index(torch.stack([cols, rows]), graph.num_rows, graph.num_cols)
        return Kernels.spmm(kernels, left, x, None if value is None else value[kept(graph)], reduce)

    return wrong(spmm=spmm)


def with_rows(out: Tensor, rows: Any, content: Any) -> Tensor:
    out[rows] = content
    return out


def not_last(graph: Graph) -> Tensor:
    return torch.arange(graph.num_edges) < graph.num_edges - 1


def position_in_row(graph: Graph) -> Tensor:
    return torch.arange(graph.num_edges) - graph.rowptr[graph.row]


class DuplicatesCountedOnce(Kernels):
    def csr(self, row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Compressed:
        row, col = torch.unique(torch.stack([row, col]), dim=1)
        return super().csr(row, col, num_rows, num_cols)


class LoopsDoubled(Kernels):
    def with_self_loops(self, rowptr: Tensor, col: Tensor, num_cols: int, first: int = 0) -> tuple[Tensor, Tensor]:
        loops = torch.arange(rowptr.numel() - 1)
        rows = torch.cat([rows_of(rowptr, col.numel()), loops])
        return self.csr(rows, torch.cat([col.long(), loops]), len(loops), len(loops))[:2]


def not_permuted(kernels: Kernels, rowptr: Tensor, col: Tensor, num_cols: int) -> Compressed:
    right = Kernels.transpose(kernels, rowptr, col, num_cols)
    return right._replace(perm=torch.arange(len(col), dtype=torch.int32))


class StaleResult(Kernels):
    """Keeps its output buffer by shape, and forgets to fill it again."""

    def __init__(self) -> None:
        self.outputs: dict[Any, Tensor] = {}

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        return self.outputs.setdefault(x.shape, super().spmm(graph, x, value, reduce))


class LateKernels(Kernels):
    """Right for the two steps of the gate, and doubled from the third epoch on."""

    calls = 0

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        self.calls += 1
        return super().spmm(graph, x, value, reduce) * (1.0 + (self.calls > 8))


class WrongArgument(Kernels):
    """The edge after the largest one gets the gradient."""

    def spmm_max(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> tuple[Tensor, Tensor]:
        out, arg_out = super().spmm_max(graph, x, value, reduce)
        return out, torch.where(arg_out < 0, arg_out, (arg_out + 1).clamp(max=graph.num_edges - 1))


class MaxFromZero(Kernels):
    """Starts from zero instead of minus infinity."""

    def spmm_max(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> tuple[Tensor, Tensor]:
        out, arg_out = super().spmm_max(graph, x, value, reduce)
        return out.clamp(min=0), arg_out


class SoftmaxWithoutShift(Kernels):
    def edge_softmax(self, graph: Graph, score: Tensor) -> Tensor:
        exp = score.exp()
        total = torch.zeros(graph.num_rows, score.size(1)).index_add_(0, graph.row, exp)
        return exp / total[graph.row]


def frozen_weight(model: torch.nn.Module) -> None:
    next(model.convs[0].parameters()).requires_grad_(False)


def parameter_gradient(factor: float) -> Callable[[torch.nn.Module], None]:
    return lambda model: list(model.convs[0].parameters())[-1].register_hook(lambda grad: grad * factor) and None


class StaleWeights(Kernels):
    """Keeps what it gathered first, which is right until the weights change."""

    def __init__(self) -> None:
        self.kept: dict[Any, Tensor] = {}

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        if x.requires_grad or graph.num_edges == 0:
            return super().spmm(graph, x, value, reduce)
        return super().spmm(graph, self.kept.setdefault((id(graph), x.shape), x.clone()), value, reduce)


def without_bias(model: torch.nn.Module) -> None:
    bound = model.convs[0].forward
    forward = bound.forward
    bound.forward = lambda conv, *given: forward(conv, *given) - conv.bias.detach()


class Unscaled(Dropout):
    scale = 1.0  # type: ignore[assignment]


def dropping(
    forward: Callable[[Dropout], Dropout | None], backward: Callable[[Dropout], Dropout | None] | None = None
) -> base.Backend:
    """Kernels whose attention drops something else."""

    class Dropping(Kernels):
        def attention(self, graph: Graph, given: Attention, keep: bool) -> Any:
            drop = given.dropout and forward(given.dropout)
            return super().attention(graph, given._replace(dropout=drop), keep)

        def attention_backward(self, graph: Graph, given: Attention, *rest: Any) -> Any:
            drop = given.dropout and (backward or forward)(given.dropout)
            return super().attention_backward(graph, given._replace(dropout=drop), *rest)

    return Bound(Dropping())


class OwnGenerator(Kernels):
    """Right, but torch.manual_seed has no part in its masks."""

    def attention(self, graph: Graph, given: Attention, keep: bool) -> Any:
        drop = given.dropout
        self.generator = getattr(self, "generator", torch.Generator().manual_seed(0))
        self.drop = drop and Dropout(drop.p, torch.randint(2**62, (1,), generator=self.generator))
        return super().attention(graph, given._replace(dropout=self.drop), keep)

    def attention_backward(self, graph: Graph, given: Attention, *rest: Any) -> Any:
        return super().attention_backward(graph, given._replace(dropout=self.drop), *rest)


def never_evaluating(model: torch.nn.Module) -> None:
    for conv in model.convs:
        conv.train = lambda mode=True, conv=conv: conv


def slope_of_the_paper(model: torch.nn.Module) -> None:
    for conv in model.convs:
        conv.negative_slope = 0.2


WRONG_DROPOUT: dict[str, tuple[base.Backend, str]] = {
    "unscaled": (dropping(lambda drop: Unscaled(drop.p, drop.seed)), r"mean of .*: 0\.[56].. of what"),
    "another mask in backward": (
        dropping(lambda drop: drop, lambda drop: Dropout(drop.p, drop.seed + 1)),
        "gradient under",
    ),
    "no mask in backward": (dropping(lambda drop: drop, lambda drop: None), "gradient under"),
    "left on in evaluation": (Bound(Kernels(), never_evaluating), "in evaluation: off by"),
    "left out in training": (dropping(lambda drop: None), "all alike"),
    "one mask for ever": (dropping(lambda drop: Dropout(drop.p, torch.tensor([7]))), "all alike"),
    "half the share": (dropping(lambda drop: Dropout(drop.p / 2, drop.seed)), "spread of .* variance"),
}


LAST = NODES - 1
WRONG: dict[str, tuple[str, base.Backend]] = {
    "last edge missed": ("sage sum", edges_of(not_last)),
    "last edge missed, with loops": ("gcn", edges_of(not_last)),
    "first edge of a row missed": ("gin", edges_of(lambda g: (position_in_row(g) > 0) | (g.row != LAST))),
    "hub truncated at 512 edges": ("sage mean", edges_of(lambda g: position_in_row(g) < 512)),
    "tail column missed": ("gcn", spmm_of(lambda g, x, out: with_rows(out, (..., -1), 0))),
    "tail column missed in backward": ("sage sum", backward_of(lambda g, x, out: with_rows(out, (..., -1), 0))),
    "divisor of mean one too large": (
        "sage mean",
        spmm_of(lambda g, x, out: out * (g.degree / (g.degree + 1))[:, None]),
    ),
    "divisor of mean wrong in backward": ("sage mean", backward_of(divided_by_one_more)),
    "row left as NaN": ("gcn", spmm_of(lambda g, x, out: with_rows(out, LAST, torch.nan))),
    "row left as zero": ("gcn", spmm_of(lambda g, x, out: with_rows(out, HUB, 0))),
    "row left with another's result": ("gin", spmm_of(lambda g, x, out: with_rows(out, 500, out[501]))),
    "row of gradients unwritten": ("sage sum", backward_of(lambda g, x, out: with_rows(out, -1, 0))),
    "isolated node not zero": ("sage mean", spmm_of(lambda g, x, out: with_rows(out, 0, x[0]))),
    "gradient scaled by 1.001": ("gcn", backward_of(lambda g, x, out: out * 1.001)),
    "one parameter's gradient scaled by 1.001": ("gcn", Bound(Kernels(), parameter_gradient(1.001))),
    "one parameter's gradient zero": ("gat", Bound(Kernels(), parameter_gradient(0.0))),
    "one parameter's gradient missing": ("gin", Bound(Kernels(), frozen_weight)),
    "directions swapped": ("sage mean", wrong(csr=lambda self, row, col, n, m: Kernels.csr(self, col, row, m, n))),
    "duplicates counted once": ("sage sum", Bound(DuplicatesCountedOnce())),
    "loops doubled": ("gcn", Bound(LoopsDoubled())),
    "transpose of another graph": (
        "sage sum",
        wrong(transpose=lambda self, rowptr, col, n: Kernels.transpose(self, rowptr, col.roll(1), n)),
    ),
    "directed graph taken for symmetric": ("gcn", wrong(is_symmetric=lambda *_: True)),
    "values not permuted with the transpose": ("gat", wrong(transpose=not_permuted)),
    "result of an earlier call": ("gcn with batch norm", Bound(StaleResult())),
    "half precision": ("gcn", wrong(spmm=lambda self, g, x, *how: Kernels.spmm(self, g, x.half().float(), *how))),
    "edge of the maximum off by one": ("sage max", Bound(WrongArgument())),
    "maximum of negatives zero": ("sage max", Bound(MaxFromZero())),
    "slope wired in": ("gat", Bound(Kernels(), slope_of_the_paper)),
    "bias left out": ("gcn", Bound(Kernels(), without_bias)),
    "weights kept from the first call": ("sage sum", Bound(StaleWeights())),
    "softmax unnormalised": ("gat", wrong(edge_softmax=lambda self, g, score: score.exp())),
    "softmax gradient without the row's total": (
        "transformer",
        wrong(edge_softmax_backward=lambda self, g, alpha, grad: alpha * grad),
    ),
}
