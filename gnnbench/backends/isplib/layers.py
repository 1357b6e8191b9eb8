"""Layers of rows of numbers: dropout, embeddings, scores of heads, perceptrons, batch norm, products and GRUs.

Each by the module in `cython_kernels/` of its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels, computes
from gnnbench.backends.isplib.choices import L2_BYTES
from gnnbench.backends.isplib.workspace import in_huge_pages
from gnnbench.ops._workload import Direction
from gnnbench.ops.dropout import Dropout
from gnnbench.ops.layers import Pair, check_categories

native_dropout, native_embedding, native_heads = map(_compiled.load, ("dropout", "embedding", "heads"))
native_perceptron, native_norm = map(_compiled.load, ("perceptron", "norm"))
native_linear, native_gru = map(_compiled.load, ("linear", "gru"))

# At most so many chunks of the rows, for threads, of at least so many rows each.
HEAD_CHUNKS, PERCEPTRON_CHUNKS, NORM_CHUNKS, GRU_CHUNKS = (64, 64), (64, 512), (64, 64), (256, 512)
LINEAR_CHUNKS, TILE_CHUNKS = (64, 512), (16, 128)  # the second of tiles, where the first are fewer
PARTIAL_BYTES = 16 << 20  # of all chunks' gradients of a weight, each of which is memory to be faulted in

MOST_INPUTS = 16  # of a perceptron, beyond which products of whole matrices are faster
LANES = 16  # numbers of the longest vectors, of which rows of a perceptron's weights are whole ones
TEAM_WORK = 1 << 15  # numbers to normalise that are worth waking a team for
LEAST, LEAST_WEIGHT = 16, 512  # inputs, outputs; and numbers of a weight, below which torch is as fast
LEAST_ROWS, LEAST_WORK = 128, 1 << 22  # rows, and multiplications, that pay for packing the weight
NARROW = 4  # times as many pay without AVX-512, where torch multiplies as fast
AVX512 = _compiled.ISA.index("avx512")
LEAST_TILES = {"forward": 64, "backward": 96}  # inputs and outputs, below which vectors multiply as fast as tiles
MOST_WEIGHT, MANY_ROWS = 4, 512  # second-level caches of a weight; rows that pay for packing more than half of one


class LayerKernels(BaseKernels):
    """Layers in as few passes over the rows as there can be, which keep no more than their backward reads."""

    def dropout(self, x: Tensor, dropout: Dropout) -> Tensor:
        if not computes(x):
            return super().dropout(x, dropout)
        out, (low, high) = in_huge_pages(torch.empty_like(x)), dropout.words()
        draw = {"first": dropout.first, "low": low, "high": high, "threshold": dropout.threshold}
        native_dropout.dropout(self.isa, self.threads, x=x, out=out, count=x.numel(), scale=dropout.scale, **draw)
        return out

    def embedding_sum(self, table: Tensor, categories: Tensor, starts: Tensor) -> Tensor:
        if not computes(table) or not table.numel():
            return super().embedding_sum(table, categories, starts)
        out = in_huge_pages(table.new_empty(len(categories), table.size(1)))
        self._look_up(native_embedding.sum, categories, starts, table.size(1), table=table.contiguous(), out=out)
        return out

    def embedding_sum_backward(self, grad_out: Tensor, categories: Tensor, starts: Tensor) -> Tensor:
        if not computes(grad_out):
            return super().embedding_sum_backward(grad_out, categories, starts)
        grad_table, width = grad_out.new_zeros(int(starts[-1]), grad_out.size(1)), grad_out.size(1)
        tensors = {"grad_out": grad_out.contiguous(), "grad_table": grad_table}
        self._look_up(native_embedding.add, categories, starts, width, **tensors)
        return grad_table

    def _look_up(
        self, kernel: Callable[..., None], categories: Tensor, starts: Tensor, width: int, **tensors: Tensor
    ) -> None:
        """Run `kernel`; raise DatasetError where it met a category that its table lacks."""
        lacking, (rows, columns) = torch.zeros(1, dtype=torch.int64), categories.shape
        sizes = {"rows": rows, "columns": columns, "width": width}
        given = {"categories": categories.contiguous(), "starts": starts, "lacking": lacking}
        kernel(self.isa, self.threads, **given, **sizes, **tensors)
        if lacking:
            check_categories(categories, starts)

    def head_scores(self, x: Tensor, att: Tensor) -> Tensor:
        if not computes(x, att):
            return super().head_scores(x, att)
        out = x.new_empty(len(att), *x.shape[:2])
        native_heads.forward(self.isa, self.threads, **_of_heads(x, att), out=out)
        return out

    def head_scores_backward(self, grad_out: Tensor, x: Tensor, att: Tensor) -> Pair:
        if not computes(grad_out, x, att):
            return super().head_scores_backward(grad_out, x, att)
        fields, grads = _of_heads(x, att), (in_huge_pages(torch.empty_like(x)), torch.empty_like(att))
        partial = x.new_empty(fields["chunks"], *att.shape)
        given = {"grad_out": grad_out, "partial": partial}
        native_heads.backward(self.isa, self.threads, **fields, **given, grad_x=grads[0], grad_att=grads[1])
        return grads

    def perceptron(self, x: Tensor, weights: Tensor) -> Tensor:
        if not _is_small(x, weights):
            return super().perceptron(x, weights)
        out = x.new_empty(len(x))
        native_perceptron.forward(self.isa, self.threads, **_of_perceptron(x, weights), out=out)
        return out

    def perceptron_backward(self, grad_out: Tensor, x: Tensor, weights: Tensor) -> Pair:
        if not _is_small(x, weights):
            return super().perceptron_backward(grad_out, x, weights)
        fields, grad_x = _of_perceptron(x, weights), torch.empty_like(x)
        partial = x.new_empty(fields["chunks"], *fields["weights"].shape)
        given = {"grad_out": grad_out, "grad_x": grad_x, "partial": partial}
        native_perceptron.backward(self.isa, self.threads, **fields, **given)
        return grad_x, partial.sum(0)[:, : weights.size(1)]

    def batch_norm(
        self, x: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        if not _are_rows(x, weight, bias):
            return super().batch_norm(x, weight, bias, eps, relu)
        out, mean, var = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(bias)
        given = {"x": x, "weight": weight, "bias": bias, "mean": mean, "var": var, "out": out}
        native_norm.forward(*self._norm_team(x), **given, **_of_norm(x), eps=eps, relu=relu)
        return out, mean, var

    def normalise(
        self, x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool
    ) -> Tensor:
        if not _are_rows(x, mean, var, weight, bias):
            return super().normalise(x, mean, var, weight, bias, eps, relu)
        out = in_huge_pages(torch.empty_like(x))
        given = {"x": x, "weight": weight, "bias": bias, "mean": mean, "var": var, "out": out}
        native_norm.normalise(*self._norm_team(x), **given, **_of_norm(x), eps=eps, relu=relu)
        return out

    def batch_norm_backward(
        self, x: Tensor, grad_out: Tensor, weight: Tensor, bias: Tensor, moments: Pair, eps: float, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        if not _are_rows(x, weight, bias, grad_out, *moments):
            return super().batch_norm_backward(x, grad_out, weight, bias, moments, eps, relu)
        grads = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(bias)
        given = {"x": x, "weight": weight, "bias": bias, "grad_out": grad_out}
        given |= {"mean": moments[0], "var": moments[1]}
        out = dict(zip(("out", "grad_weight", "grad_bias"), grads, strict=True))
        native_norm.backward(*self._norm_team(x), **given, **out, **_of_norm(x), eps=eps, relu=relu)
        return grads

    def _norm_team(self, x: Tensor) -> tuple[int, int]:
        return self.isa, self.threads if x.numel() >= TEAM_WORK else 1

    def pays(self, op: str, *tensors: Tensor) -> bool:
        return fits(self.isa, *tensors) if op == "linear" else super().pays(op, *tensors)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not computes(x, weight):
            return super().linear(x, weight, bias)
        out = in_huge_pages(x.new_empty(len(x), len(weight)))
        self._multiply(x, weight, bias, out)
        return out

    def product(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        if not fits(self.isa, x, weight):
            return super().product(x, weight, out)
        self._multiply(x, weight, None, out)

    def _multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        level = self._level("forward", weight)
        native_linear.forward(level, self.threads, **_of_linear(x, weight), bias=bias, out=out)

    def linear_backward(
        self, grad_out: Tensor, x: Tensor, weight: Tensor, needs_x: bool
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        if not computes(grad_out, x, weight):
            return super().linear_backward(grad_out, x, weight, needs_x)
        grad_x = in_huge_pages(torch.empty_like(x)) if needs_x else None
        grad_weight, grad_bias = torch.empty_like(weight), x.new_empty(len(weight))
        level = self._level("backward", weight)
        chunks = _chunks(len(x), (min(LINEAR_CHUNKS[0], PARTIAL_BYTES // max(weight.nbytes, 1)), LINEAR_CHUNKS[1]))
        if level > self.isa:  # vectors share what there is to do on a chunk
            chunks = max(chunks, _chunks(len(x), TILE_CHUNKS))
        tensors = {"grad_out": grad_out, "grad_x": grad_x, "grad_weight": grad_weight, "grad_bias": grad_bias}
        fields = {**_of_linear(x, weight), **tensors, "chunks": chunks}
        native_linear.backward(level, self.threads, **fields)
        return grad_x, grad_weight, grad_bias

    def add_weight_grad(self, grad_out: Tensor, x: Tensor, grad_weight: Tensor) -> None:
        if not fits(self.isa, x, grad_weight):
            return super().add_weight_grad(grad_out, x, grad_weight)
        # The weight itself is read for the gradient of x alone.
        _, more, _ = self.linear_backward(grad_out, x, grad_weight, needs_x=False)
        grad_weight += more

    def _level(self, direction: Direction, *weights: Tensor) -> int:
        """Return the instruction set that multiplies by these: tiles take floats, where splitting them pays."""
        least = LEAST_TILES[direction]
        tiles = all(each.dtype == torch.float32 and min(each.shape) >= least for each in weights)
        return self.level if tiles else self.isa

    def gru(
        self, x: Tensor, state: Tensor, weights: Pair, biases: tuple[Tensor | None, Tensor | None], keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        if not _is_gru(self.isa, x, state, weights):
            return super().gru(x, state, weights, biases, keep)
        level, sizes = self._level("forward", *weights), _of_gru(state)
        layers = [
            {**_of_linear(rows, weight), "bias": bias, "chunks": sizes["chunks"]}
            for rows, weight, bias in zip((x, state), weights, biases, strict=True)
        ]
        kept = in_huge_pages(state.new_empty(len(state), 4 * state.size(1))) if keep else None
        out = in_huge_pages(torch.empty_like(state))
        native_gru.forward(self.isa, level, self.threads, *layers, **sizes, state=state, kept=kept, out=out)
        return out, kept

    def gru_backward(
        self, grad_out: Tensor, kept: Tensor, x: Tensor, state: Tensor, weights: Pair
    ) -> tuple[Pair, Pair, Pair]:
        if not _is_gru(self.isa, x, state, weights) or not computes(grad_out, kept):
            return super().gru_backward(grad_out, kept, x, state, weights)
        level, sizes = self._level("backward", *weights), _of_gru(state)
        grad_x, grad_state = (in_huge_pages(torch.empty_like(each)) for each in (x, state))
        of_weights = torch.empty_like(weights[0]), torch.empty_like(weights[1])
        of_biases = weights[0].new_empty(len(weights[0])), weights[1].new_empty(len(weights[1]))
        layers = [
            {**_of_linear(rows, weight), "chunks": sizes["chunks"], "grad_weight": of_weight, "grad_bias": of_bias}
            for rows, weight, of_weight, of_bias in zip((x, state), weights, of_weights, of_biases, strict=True)
        ]
        layers[0]["grad_x"] = grad_x
        fields = {"state": state, "grad_out": grad_out, "kept": kept, "out": grad_state}
        native_gru.backward(self.isa, level, self.threads, *layers, **sizes, **fields)
        return (grad_x, grad_state), of_weights, of_biases


def fits(isa: int, x: Tensor, weight: Tensor) -> bool:
    """Return whether torch could do this product, it is large enough, and its weight is not too large."""
    if x.dim() != 2 or weight.dim() != 2:
        return False
    (rows, ins), (outs, expected) = x.shape, weight.shape
    return (
        rows * ins * outs >= LEAST_WORK * (NARROW if isa < AVX512 else 1)  # first, as most are small
        and rows >= LEAST_ROWS
        and outs * ins >= LEAST_WEIGHT
        and min(outs, ins) >= LEAST
        and ins == expected
        and x.dtype == weight.dtype
        and computes(x, weight)
        and 2 * weight.nbytes <= (2 * MOST_WEIGHT if rows >= MANY_ROWS else 1) * L2_BYTES
    )


def _is_small(x: Tensor, weights: Tensor) -> bool:
    return computes(x, weights) and 0 < x.size(1) <= MOST_INPUTS


def _are_rows(x: Tensor, *others: Tensor) -> bool:
    """Return whether x are rows, and all others rows as many or one, of the same type and as long."""
    return (
        computes(x, *others)
        and x.dim() == 2
        and x.numel() > 0
        and all(each.shape in (x.shape, x.shape[1:]) for each in others)
        and all(each.dtype == x.dtype and each.is_contiguous() for each in (x, *others))
    )


def _is_gru(isa: int, x: Tensor, state: Tensor, weights: Pair) -> bool:
    return (
        fits(isa, x, weights[0])
        and fits(isa, state, weights[1])
        and len(x) == len(state)
        and len(weights[0]) == len(weights[1]) == 3 * state.size(1)
    )


def _chunks(rows: int, most_and_least: tuple[int, int]) -> int:
    """Return how many chunks there are of so many rows, whatever the threads."""
    most, least = most_and_least
    return max(1, min(most, rows // least))


def _of_heads(x: Tensor, att: Tensor) -> dict[str, Any]:
    rows, heads, width = x.shape
    sizes = {"rows": rows, "heads": heads, "width": width, "count": len(att)}
    return {**sizes, "chunks": _chunks(rows, HEAD_CHUNKS), "x": x, "att": att}


def _of_perceptron(x: Tensor, weights: Tensor) -> dict[str, Any]:
    weights = F.pad(weights, (0, -weights.size(1) % LANES))  # numbers that are zero, as are their gradients
    sizes = {"rows": len(x), "ins": x.size(1), "width": weights.size(1)}
    return {**sizes, "chunks": _chunks(len(x), PERCEPTRON_CHUNKS), "x": x, "weights": weights}


def _of_norm(x: Tensor) -> dict[str, Any]:
    rows, width = x.shape
    chunks = _chunks(rows, NORM_CHUNKS)
    partial = torch.empty(chunks, 5, width, dtype=torch.float64)
    return {"rows": rows, "width": width, "chunks": chunks, "partial": partial}


def _of_linear(x: Tensor, weight: Tensor) -> dict[str, Any]:
    return {"x": x, "weight": weight, "rows": len(x), "ins": weight.size(1), "outs": weight.size(0)}


def _of_gru(state: Tensor) -> dict[str, int]:
    return {"rows": len(state), "width": state.size(1), "chunks": _chunks(len(state), GRU_CHUNKS)}
