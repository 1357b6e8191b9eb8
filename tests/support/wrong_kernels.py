"""Kernels that are wrong on purpose, and the graph and path on which the parity gate must notice."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnnbench import config, convs
from gnnbench.backends import base, pyg
from gnnbench.compare import parity
from gnnbench.config import BackendConfig
from gnnbench.datasets import NodeDataset
from gnnbench.graph import Compressed, Graph, rows_of
from gnnbench.ops.kernels import Kernels

NODES, HUB, CLASSES = 900, 17, 5
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"name": "gcn"},
    "gcn with batch norm": {"name": "gcn", "norm": "batch", "layers": 3},
    "sage mean": {"name": "sage", "aggr": "mean"},
    "sage sum": {"name": "sage", "aggr": "sum"},
    "sage max": {"name": "sage", "aggr": "max"},
    "gin": {"name": "gin"},
    "gat": {"name": "gat", "heads": 2},
    "gatv2": {"name": "gatv2", "heads": 2},
    "transformer": {"name": "transformer", "heads": 2},
    "agnn": {"name": "agnn"},
}


@functools.cache
def dataset(loudness: float = 1.0) -> NodeDataset:
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
    x = torch.randn(NODES, 40, generator=generator) * loudness
    y = drawn(0, CLASSES, NODES)
    split = torch.arange(NODES) % 5
    masks = (split < 3, split == 3, split == 4)
    return NodeDataset("zoo", edges, x, y, *masks, CLASSES, "accuracy", lambda *_: 0.0)


def run_config(model: str) -> Any:
    section = {"hidden": 24, "dropout": 0.5, **MODELS[model]}
    raw = {"dataset": {"source": "synthetic", "preset": "cora"}, "model": section}
    return config.validate(parity.checked(config.validate(raw, "test").model_dump()), "test")


@functools.cache
def reference(model: str, loudness: float = 1.0) -> tuple[dict[str, Tensor], list[str]]:
    return parity.tensors(run_config(model), pyg.Backend(BackendConfig()), dataset(loudness), as_reference=True)


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


def verdict(model: str, backend: base.Backend, loudness: float = 1.0) -> parity.BackendParity:
    found, _ = parity.tensors(run_config(model), backend, dataset(loudness), as_reference=False)
    return parity.judge(found, *reference(model, loudness))


class Backward(Kernels):
    """Right forward; `wrong` changes what spmm gives on the transpose."""

    def __init__(self) -> None:
        self.transposes: list[Graph] = []

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        if any(graph is transpose for transpose in self.transposes):
            return self.wrong(graph, x, value)
        self.transposes.append(graph.transpose)
        return super().spmm(graph, x, value, reduce)

    def wrong(self, graph: Graph, x: Tensor, value: Tensor | None) -> Tensor:
        raise NotImplementedError


class ScaledGradient(Backward):
    def wrong(self, graph: Graph, x: Tensor, value: Tensor | None) -> Tensor:
        return Kernels.spmm(self, graph, x, value, "sum") * 1.001


class WrongDivisorInBackward(Backward):
    def wrong(self, graph: Graph, x: Tensor, value: Tensor | None) -> Tensor:
        degree = graph.transpose.degree.clamp(min=1).unsqueeze(1)
        return Kernels.spmm(self, graph, x * degree / (degree + 1), value, "sum")


class GradientOfLastNodeUnwritten(Backward):
    def wrong(self, graph: Graph, x: Tensor, value: Tensor | None) -> Tensor:
        out = Kernels.spmm(self, graph, x, value, "sum")
        out[-1] = 0
        return out


class MissedTailColumnInBackward(Backward):
    def wrong(self, graph: Graph, x: Tensor, value: Tensor | None) -> Tensor:
        out = Kernels.spmm(self, graph, x, value, "sum")
        out[:, -1] = 0
        return out


def spmm_of(change: Callable[[Graph, Tensor, Tensor], Tensor]) -> type[Kernels]:
    """Kernels whose every spmm is `change(graph, x, right result)`."""

    class Changed(Kernels):
        def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
            return change(graph, x, super().spmm(graph, x, value, reduce))

    return Changed


def edges_of(kept: Callable[[Graph], Tensor]) -> type[Kernels]:
    """Kernels whose spmm leaves out the edges where `kept` is False."""

    class Left(Kernels):
        def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
            rows, cols = graph.row[kept(graph)], graph.col[kept(graph)].long()
            left = Graph.from_edge_index(torch.stack([cols, rows]), graph.num_rows, graph.num_cols)
            return super().spmm(left, x, None if value is None else value[kept(graph)], reduce)

    return Left


def with_rows(out: Tensor, rows: Any, content: Any) -> Tensor:
    out[rows] = content
    return out


def with_columns(out: Tensor, content: Any) -> Tensor:
    out[..., -1] = content
    return out


def not_last(graph: Graph) -> Tensor:
    return torch.arange(graph.num_edges) < graph.num_edges - 1


def position_in_row(graph: Graph) -> Tensor:
    return torch.arange(graph.num_edges) - graph.rowptr[graph.row]


class SwappedDirections(Kernels):
    def csr(self, row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Compressed:
        return super().csr(col, row, num_cols, num_rows)


class DuplicatesCountedOnce(Kernels):
    def csr(self, row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Compressed:
        row, col = torch.unique(torch.stack([row, col]), dim=1)
        return super().csr(row, col, num_rows, num_cols)


class LoopsDoubled(Kernels):
    def with_self_loops(self, rowptr: Tensor, col: Tensor, num_cols: int) -> tuple[Tensor, Tensor]:
        loops = torch.arange(rowptr.numel() - 1)
        rows = torch.cat([rows_of(rowptr, col.numel()), loops])
        return self.csr(rows, torch.cat([col.long(), loops]), len(loops), len(loops))[:2]


class StaleTranspose(Kernels):
    """That of a graph of the same size."""

    def transpose(self, rowptr: Tensor, col: Tensor, num_cols: int) -> Compressed:
        return super().transpose(rowptr, col.roll(1), num_cols)


class TakenForSymmetric(Kernels):
    def is_symmetric(self, rowptr: Tensor, col: Tensor) -> bool:
        return True


class ValuesNotPermuted(Kernels):
    def transpose(self, rowptr: Tensor, col: Tensor, num_cols: int) -> Compressed:
        return super().transpose(rowptr, col, num_cols)._replace(perm=torch.arange(len(col), dtype=torch.int32))


class StaleResult(Kernels):
    """Keeps its output buffer by shape, and forgets to fill it again."""

    def __init__(self) -> None:
        self.outputs: dict[Any, Tensor] = {}

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        return self.outputs.setdefault(x.shape, super().spmm(graph, x, value, reduce))


class HalfPrecision(Kernels):
    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        return super().spmm(graph, x.half().float(), value, reduce)


class WrongArgument(Kernels):
    """The edge after the largest one gets the gradient."""

    def spmm_extremum(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> tuple[Tensor, Tensor]:
        out, arg_out = super().spmm_extremum(graph, x, value, reduce)
        return out, torch.where(arg_out < 0, arg_out, (arg_out + 1).clamp(max=graph.num_edges - 1))


class MaxFromZero(Kernels):
    """Starts from zero instead of minus infinity."""

    def spmm_extremum(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> tuple[Tensor, Tensor]:
        out, arg_out = super().spmm_extremum(graph, x, value, reduce)
        return out.clamp(min=0), arg_out


class SoftmaxUnnormalised(Kernels):
    def edge_softmax(self, graph: Graph, score: Tensor) -> Tensor:
        return score.exp()


class SoftmaxWithoutShift(Kernels):
    def edge_softmax(self, graph: Graph, score: Tensor) -> Tensor:
        exp = score.exp()
        total = torch.zeros(graph.num_rows, score.size(1)).index_add_(0, graph.row, exp)
        return exp / total[graph.row]


class SoftmaxGradientWithoutTotal(Kernels):
    def edge_softmax_backward(self, graph: Graph, alpha: Tensor, grad_alpha: Tensor) -> Tensor:
        return alpha * grad_alpha


def frozen_weight(model: torch.nn.Module) -> None:
    next(model.convs[0].parameters()).requires_grad_(False)


def parameter_gradient(factor: float) -> Callable[[torch.nn.Module], None]:
    return lambda model: list(model.convs[0].parameters())[-1].register_hook(lambda grad: grad * factor) and None


LAST = NODES - 1
WRONG: dict[str, tuple[str, base.Backend]] = {
    "last edge missed": ("sage sum", Bound(edges_of(not_last)())),
    "last edge missed, with loops": (
        "gcn",
        Bound(edges_of(not_last)()),
    ),
    "first edge of a row missed": ("gin", Bound(edges_of(lambda g: (position_in_row(g) > 0) | (g.row != LAST))())),
    "hub truncated at 512 edges": ("sage mean", Bound(edges_of(lambda g: position_in_row(g) < 512)())),
    "tail column missed": ("gcn", Bound(spmm_of(lambda g, x, out: with_columns(out, 0))())),
    "tail column missed in backward": ("sage sum", Bound(MissedTailColumnInBackward())),
    "divisor of mean one too large": (
        "sage mean",
        Bound(spmm_of(lambda g, x, out: out * (g.degree / (g.degree + 1)).unsqueeze(1))()),
    ),
    "divisor of mean wrong in backward": ("sage mean", Bound(WrongDivisorInBackward())),
    "row left as NaN": ("gcn", Bound(spmm_of(lambda g, x, out: with_rows(out, LAST, torch.nan))())),
    "row left as zero": ("gcn", Bound(spmm_of(lambda g, x, out: with_rows(out, HUB, 0))())),
    "row left with another's result": ("gin", Bound(spmm_of(lambda g, x, out: with_rows(out, 500, out[501]))())),
    "row of gradients unwritten": ("sage sum", Bound(GradientOfLastNodeUnwritten())),
    "isolated node not zero": ("sage mean", Bound(spmm_of(lambda g, x, out: with_rows(out, 0, x[0]))())),
    "gradient scaled by 1.001": ("gcn", Bound(ScaledGradient())),
    "one parameter's gradient scaled by 1.001": ("gcn", Bound(Kernels(), parameter_gradient(1.001))),
    "one parameter's gradient zero": ("gat", Bound(Kernels(), parameter_gradient(0.0))),
    "one parameter's gradient missing": ("gin", Bound(Kernels(), frozen_weight)),
    "directions swapped": ("sage mean", Bound(SwappedDirections())),
    "duplicates counted once": ("sage sum", Bound(DuplicatesCountedOnce())),
    "loops doubled": ("gcn", Bound(LoopsDoubled())),
    "transpose of another graph": ("sage sum", Bound(StaleTranspose())),
    "directed graph taken for symmetric": ("gcn", Bound(TakenForSymmetric())),
    "values not permuted with the transpose": ("gat", Bound(ValuesNotPermuted())),
    "result of an earlier call": ("gcn with batch norm", Bound(StaleResult())),
    "half precision": ("gcn", Bound(HalfPrecision())),
    "edge of the maximum off by one": ("sage max", Bound(WrongArgument())),
    "maximum of negatives zero": ("sage max", Bound(MaxFromZero())),
    "softmax unnormalised": ("gat", Bound(SoftmaxUnnormalised())),
    "softmax gradient without the row's total": ("transformer", Bound(SoftmaxGradientWithoutTotal())),
}
