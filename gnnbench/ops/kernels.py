"""Kernels: the op set every backend offers, and its executable specification in plain torch, without autograd."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from gnnbench.graph import CSRBuilder, Graph, rows_of
from gnnbench.ops.dropout import Dropout
from gnnbench.ops.families import FAMILIES, Attention, Inputs
from gnnbench.ops.layers import Layers
from gnnbench.ops.program import Program, interpreted

if TYPE_CHECKING:
    from gnnbench.graph.cache import GraphCache

EXTREMA = ("min", "max")
REDUCTIONS = ("sum", "mean", *EXTREMA)
Choice = dict[str, int | str]  # the knobs of a kernel, which change its speed but not what it computes
# x, and value of `spmm` or else of_source, scale and bias of `spmm_scaled`
Summed = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]
LEAKY_SLOPE = 0.2  # of FusedMM, as GAT's


class EdgeFn(NamedTuple):
    """A function of a score and its derivative; neither overflows nor cancels where its result would not."""

    value: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]


# Those that FusedMM knows; compiled kernels know them by their order here.
EDGE_FNS = {
    "identity": EdgeFn(lambda s: s, torch.ones_like),
    "sigmoid": EdgeFn(torch.sigmoid, lambda s: s.sigmoid() * (-s).sigmoid()),
    "exp": EdgeFn(torch.exp, torch.exp),
    "leaky_relu": EdgeFn(
        lambda s: F.leaky_relu(s, LEAKY_SLOPE), lambda s: torch.ones_like(s).masked_fill_(s <= 0, LEAKY_SLOPE)
    ),
    "tanh": EdgeFn(torch.tanh, lambda s: 4 * (2 * s).sigmoid() * (-2 * s).sigmoid()),
}


def choice_key(op: str, width: int, dtype: torch.dtype, heads: int = 1) -> tuple[str, str, int, torch.dtype, int]:
    """Where in `graph.cache` a choice for `op` is."""
    return "choice", op, width, dtype, heads


class Capabilities(CSRBuilder):
    """State which inputs kernels take, and how they can be run.

    Attributes:
        accelerated: names of the ops that a class overrides; follows from its methods and `families`.
        families: attention's score functions that it has kernels for, where it overrides `attention`.
    """

    name: ClassVar[str] = "torch"
    chunk_bytes: ClassVar[int] = 4 << 20  # kept alive by a chunk of streamed edges: a part of the last cache
    accelerated: ClassVar[frozenset[str]] = frozenset()
    families: ClassVar[Collection[str]] = tuple(FAMILIES)
    types: ClassVar[tuple[torch.dtype, ...]] = ()  # that they compute in, on `device_type`; empty: any, anywhere
    most_heads: ClassVar[int] = 0  # of `edge_softmax`; 0 for any number
    narrow: ClassVar[tuple[torch.dtype, ...]] = ()  # types below float32 whose elements are accumulated in it
    device_type: ClassVar[str] = "cpu"  # where tensors must be for `patch_pyg` to take these kernels

    @cached_property
    def pair_graphs(self) -> GraphCache:
        """Graphs of the pairs of nodes that ops were called on, which are kept as long as these."""
        from gnnbench.graph.cache import MAX_GRAPH_BYTES, GraphCache

        return GraphCache(self, MAX_GRAPH_BYTES)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "pair_graphs"}  # it holds a lock

    def spmm_again(self, graph: Graph, reduce: str, inputs: Summed) -> Tensor | None:
        """Return `spmm`, or `spmm_scaled` where there are scales, of tensors like those of an earlier call.

        Only what can have changed since is looked at, in far less time than a call takes. None where that call is
        not found, or where autograd has to follow.
        """
        return None

    def unsupported(self, op: str, graph: Graph, *tensors: Tensor | None) -> list[str]:
        """Reasons why `op` cannot run on these inputs; empty if it can."""
        reasons, on_cpu = [], self.device_type == "cpu"
        for each in tensors if self.types else ():
            if each is None:
                continue
            if not (each.is_cpu if on_cpu else each.is_cuda):  # in an eighth of the time of `device.type`
                reasons.append(f"a tensor is on {each.device}; {self.name} runs on {self.device_type} tensors")
            elif each.dtype not in self.types:
                known = ", ".join(str(dtype).removeprefix("torch.") for dtype in self.types)
                reasons.append(f"a tensor has type {each.dtype}; {self.name} computes in {known}")
            elif op == "edge_softmax" and 0 < self.most_heads < each.size(-1):
                reasons.append(f"{each.size(-1)} heads; {self.name} normalises at most {self.most_heads}")
            elif op.endswith("_attention") and not all(each.shape[1:]):
                reasons.append(f"a tensor has no heads or no channels; {self.name} needs at least one of each")
        return reasons

    def pays(self, op: str, *tensors: Tensor) -> bool:
        """Return whether these kernels are faster than torch at an op that it has too."""
        return op in self.accelerated

    def computes_in(self, dtype: torch.dtype) -> torch.dtype:
        """The type of what is computed of tensors of `dtype` under autocast."""
        return dtype if dtype in self.narrow else torch.promote_types(dtype, torch.float32)

    def choices(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> list[Choice]:
        """The ways to run `op` that a tuner may try, about ten at most; the first is what runs untuned.

        Args:
            op: name of a method of this class.
            width: channels of x, those of all heads together; the heads of what has no channels.
            heads: of an op over heads; 1 for aggregations.
        """
        return [{}]

    def chosen(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> Choice:
        """The choice that `op` runs by next: the one in `graph.cache` at `choice_key(op, width, dtype, heads)`.

        One that these kernels cannot run, such as one kept from another machine, counts as none. A pass over the
        rows of `graph.transpose`, as backward needs, has the choices of that graph, whose cache is its own unless
        it is `graph`.
        """
        return self.choices(op, graph, width, dtype, heads)[0]

    def fallback(self, choice: Choice) -> tuple[Kernels, Choice]:
        """The baseline of the tuner's speedups: kernels for any machine, and their choice beside `choice`."""
        return Kernels(), choice


class Kernels(Capabilities, Layers):
    """Plain-torch kernels: each method is an op, and a backend overrides those that it runs faster.

    Shapes: N destinations, M sources, E edges in the order of `graph.col`, H heads, C channels per head.
    A tensor over nodes is [N, F] or [N, H, C]; one over edges is [E], or [E, H] beside [N, H, C].

    Second derivatives are autograd's through the gradients as they are computed here.
    """

    def __init_subclass__(cls) -> None:
        ops = (name for name in (*vars(Kernels), *vars(Layers)) if not name.startswith("_"))
        own = {op for op in ops if getattr(cls, op) is not getattr(Kernels, op)}
        attention = {FAMILIES[name].op for name in cls.families} if "attention" in own else set()
        cls.accelerated = frozenset(own | attention)

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        """Aggregate sources: out[i] = reduce over edges (i, j) of value[ij] * x[j], for sum and mean.

        Args:
            x: [M, F] or [M, H, C].
            value: [E], or [E, H] with x [M, H, C]; None for ones.
            reduce: "sum" or "mean"; a row without edges gives zero.

        Returns:
            [N, F] or [N, H, C].
        """
        out = x.new_zeros(graph.num_rows, *x.shape[1:]).index_add_(0, graph.row, _messages(graph, x, value))
        if reduce == "mean":
            out = out * graph.degree.clamp(min=1).to(x.dtype).reciprocal().view(-1, *[1] * (out.dim() - 1))
        return out

    def spmm_scaled(
        self, graph: Graph, x: Tensor, of_source: Tensor, scale: Tensor, bias: Tensor | None
    ) -> Tensor:
        """Scale sources, and rows of their sum, as GCN: out[i] = scale[i] * sum of of_source[j] * x[j] + bias.

        Args:
            x: [M, F].
            of_source: [M, 1], of the type of x.
            scale: [N, 1], likewise.
            bias: [F], likewise.
        """
        out = self.spmm(graph, x * of_source, None, "sum")
        return out * scale if bias is None else torch.addcmul(bias, out, scale)

    def spmm_max(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> tuple[Tensor, Tensor]:
        """The greatest message instead, or with reduce="min" the least, of x [M, F] and value [E].

        Returns:
            out [N, F], zero for a row without edges, and arg_out [N, F] int32: the edge each entry came from,
            the first of equals, -1 for a row without edges. A NaN message wins its row.
        """
        message = _messages(graph, x, value)
        index = graph.row.unsqueeze(1).expand_as(message)
        out = x.new_zeros(graph.num_rows, x.size(1))
        out = out.scatter_reduce(0, index, message, "a" + reduce, include_self=False)
        hit = (message == out[graph.row]) | message.isnan()
        edge = torch.arange(graph.num_edges, dtype=torch.int32, device=x.device).unsqueeze(1)
        edge = torch.where(hit, edge, graph.num_edges)
        arg_out = torch.full(out.shape, graph.num_edges, dtype=torch.int32, device=x.device)
        arg_out = arg_out.scatter_reduce(0, index, edge, "amin")
        return out, arg_out.masked_fill_(arg_out == graph.num_edges, -1)

    def spmm_max_backward(self, graph: Graph, arg_out: Tensor, grad_out: Tensor, value: Tensor | None) -> Tensor:
        """grad_x [M, F] of `spmm_max`: every grad_out entry goes to the source of its edge."""
        if not graph.num_edges:  # nor anything to index
            arg_out, grad_out = arg_out[:0], grad_out[:0]
        edge = arg_out.clamp(min=0).long()
        grad = grad_out.masked_fill(arg_out < 0, 0.0)
        if value is not None:
            grad = grad * value[edge]
        return grad.new_zeros(graph.num_cols, grad.size(1)).scatter_add_(0, graph.col.long()[edge], grad)

    def sddmm(self, graph: Graph, a: Tensor, b: Tensor) -> Tensor:
        """Score edges: out[ij] = <a[i], b[j]> with a [N, F], b [M, F] -> [E], or [., H, C] -> [E, H]."""
        return (a[graph.row] * b[graph.col.long()]).sum(-1)

    def fusedmm(self, graph: Graph, x: Tensor, y: Tensor, edge_fn: str) -> Tensor:
        """out[i] = sum over edges (i, j) of f(<x[i], y[j]>) * y[j]; x [N, F], y [M, F] -> [N, F], or [., H, C]."""
        return self.spmm(graph, y, EDGE_FNS[edge_fn].value(self.sddmm(graph, x, y)), "sum")

    def fusedmm_grad_x(self, graph: Graph, x: Tensor, y: Tensor, edge_fn: str, grad_out: Tensor) -> Tensor:
        """The gradient of x in `fusedmm`."""
        grad = self.sddmm(graph, grad_out, y) * EDGE_FNS[edge_fn].derivative(self.sddmm(graph, x, y))
        return self.spmm(graph, y, grad, "sum")

    def fusedmm_grad_y(self, graph: Graph, x: Tensor, y: Tensor, edge_fn: str, grad_out: Tensor) -> Tensor:
        """The gradient of y in `fusedmm`: through the weights and through what they weigh."""
        score = self.sddmm(graph, x, y)
        grad = self.sddmm(graph, grad_out, y) * EDGE_FNS[edge_fn].derivative(score)
        through_score = self.spmm(graph.transpose, x, grad[graph.perm], "sum")
        return through_score + self.spmm(
            graph.transpose, grad_out, EDGE_FNS[edge_fn].value(score)[graph.perm], "sum"
        )

    def edge_softmax(self, graph: Graph, score: Tensor) -> Tensor:
        """Normalise score [E, H] over the edges of each destination, stably; alpha [E, H]."""
        top = _row_maximum(graph, score)
        exp = (score - top[graph.row]).exp_()
        total = torch.zeros_like(top).index_add_(0, graph.row, exp)
        return exp / total[graph.row]

    def edge_softmax_backward(self, graph: Graph, alpha: Tensor, grad_alpha: Tensor) -> Tensor:
        """grad_score [E, H] = alpha * (grad_alpha - sum over the row of alpha * grad_alpha)."""
        total = alpha.new_zeros(graph.num_rows, alpha.size(1)).index_add_(0, graph.row, alpha * grad_alpha)
        return alpha * (grad_alpha - total[graph.row])

    def attention(self, graph: Graph, given: Attention, keep: bool) -> tuple[Tensor, ...]:
        """Mix sources: out[i] = sum over edges (i, j) of alpha[ij] * m[ij] * value[j].

        alpha is the softmax over j of the family's scores, m what dropout multiplies it by.

        Args:
            keep: whether to return the last two results, which only the backward of a family that
                `keeps_positive` needs.

        Returns:
            out [N, H, D], zero for a row without edges; stats [N, H, 2], the maximum of a row's scores and the
            sum of exp(score - maximum), -inf and zero there; and if `keep` out_positive [N, H, D] and
            alpha_positive [N, H]: the shares of out and of the sum of alpha (without m) that come from edges with
            query[i] + key[j] > 0. All are of at least float32.

        Stats are two numbers, as in FlashAttention (Dao et al. 2022, algorithm 1): in their log-sum-exp the sum
        would be rounded off where scores are large, and with it alpha = exp(score - maximum) / sum.
        """
        family, inputs, slope, dropout = given
        value, score = given.roles[2], family.scores(self, graph, inputs, slope)
        alpha, top = self.edge_softmax(graph, score), _row_maximum(graph, score)
        total = torch.zeros_like(top).index_add_(0, graph.row, (score - top[graph.row]).exp_())
        wide = torch.promote_types(score.dtype, torch.float32)
        out = self.spmm(graph, value, _dropped(alpha, dropout), "sum").to(wide)
        stats = torch.stack([top, total], -1).to(wide)
        if not keep:
            return out, stats
        alpha = alpha * family.positive(graph, inputs)
        alpha_positive = stats.new_zeros(stats.shape[:2]).index_add_(0, graph.row, alpha.to(wide))
        return out, stats, self.spmm(graph, value, _dropped(alpha, dropout), "sum").to(wide), alpha_positive

    def attention_backward(self, graph: Graph, given: Attention, kept: Inputs, grad_out: Tensor) -> Inputs:
        """The gradients of `given.inputs`, from what `attention` was given and what it returned, `kept`."""
        family, inputs, slope, dropout = given
        alpha = self.edge_softmax(graph, family.scores(self, graph, inputs, slope))
        grad_value = self.spmm(graph.transpose, grad_out, _dropped(alpha, dropout)[graph.perm], "sum")
        grad_alpha = _dropped(self.sddmm(graph, grad_out, given.roles[2]), dropout)
        grad_score = self.edge_softmax_backward(graph, alpha, grad_alpha)
        return family.gradients(self, graph, inputs, slope, grad_score, grad_value)

    def segment(self, rowptr: Tensor, x: Tensor, reduce: str) -> Tensor:
        """out[i] = reduce of x[rowptr[i]:rowptr[i + 1]], zero where that is empty, for all of `REDUCTIONS`.

        rowptr [N + 1] int64, from 0 to E; x [E, F], contiguous -> [N, F].
        """
        index = rows_of(rowptr, len(x))
        out = x.new_zeros(len(rowptr) - 1, x.size(1))
        if reduce in EXTREMA:
            return out.scatter_reduce(0, index.unsqueeze(1).expand_as(x), x, "a" + reduce, include_self=False)
        out = out.index_add(0, index, x)
        return out / rowptr.diff().clamp(min=1).to(x.dtype).unsqueeze(1) if reduce == "mean" else out

    def segment_backward(
        self, rowptr: Tensor, grad_out: Tensor, reduce: str, x: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        """grad_x [E, F] of `segment`; that of an extremum is shared out equally among all x that equal it.

        Args:
            x, out: of the forward, contiguous; for "min" and "max" only.
        """
        index = rows_of(rowptr, int(rowptr[-1]))
        if x is None or out is None:
            shares = rowptr.diff().clamp(min=1).to(grad_out.dtype).unsqueeze(1) if reduce == "mean" else 1
            return (grad_out / shares).index_select(0, index)
        equals = (x == out.index_select(0, index)).to(x.dtype)
        shares = grad_out / torch.zeros_like(out).index_add_(0, index, equals).clamp(min=1)
        return equals * shares.index_select(0, index)

    def gather_rows(
        self, rowptr: Tensor, col: Tensor, source: Tensor | None, destination: Tensor | None
    ) -> Tensor:
        """out[e] = source[col[e]] + destination[i] for every edge e of row i; one of both may be None.

        Args:
            rowptr: [N + 1] int64, from 0 to E.
            col: [E] int32.
            source: [M, ...], of any strides.
            destination: [N, ...], of the type of source, and its shape but for the first dimension.

        Returns:
            [E, ...].
        """
        if destination is None:
            assert source is not None
            return source.index_select(0, col)
        out = destination.index_select(0, rows_of(rowptr, len(col)))
        return out if source is None else source.index_select(0, col) + out

    def add_rows(self, out: Tensor, index: Tensor, x: Tensor) -> None:
        """Add x [E, F] to the rows `index` [E] int32 of out [N, F], one after the other; all contiguous."""
        out.index_add_(0, index, x)

    def program(
        self, graph: Graph, program: Program, tensors: Sequence[Tensor], edge_id: Tensor | None
    ) -> list[Tensor]:
        """Run an elementwise Program over the edges of a graph, without gradients.

        Args:
            program: its sinks are over destinations and edges.
            tensors: [M, width], [N, width] or [E, width] for each leaf; all of one type, contiguous.
            edge_id: [E] int32, the row of a tensor over edges that each edge has; None where they are in order.

        Returns:
            [N, width] or [E, width] for each sink.
        """
        return interpreted(graph, program, tensors, edge_id, self.segment)


def _dropped(alpha: Tensor, dropout: Dropout | None) -> Tensor:
    return alpha if dropout is None else alpha * dropout.multiplier(*alpha.shape).to(alpha)


def _row_maximum(graph: Graph, score: Tensor) -> Tensor:
    """[N, H], a constant to autograd: a softmax does not depend on what is subtracted from its scores."""
    index = graph.row.unsqueeze(1).expand_as(score)
    top = score.new_full((graph.num_rows, score.size(1)), -torch.inf)
    return top.scatter_reduce_(0, index, score.detach(), "amax")


def _messages(graph: Graph, x: Tensor, value: Tensor | None) -> Tensor:
    message = x[graph.col.long()]
    return message if value is None else message * value.reshape(*value.shape, *[1] * (x.dim() - value.dim()))
