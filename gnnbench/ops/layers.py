"""Layers: the ops of `Kernels` that take rows of numbers and no graph, in plain torch, without autograd."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from gnnbench.errors import DatasetError
from gnnbench.ops.dropout import Dropout

Pair: TypeAlias = tuple[Tensor, Tensor]


class Layers:
    """Plain-torch layers of N rows; each method is an op, and a backend overrides those that it runs faster."""

    def head_scores(self, x: Tensor, att: Tensor) -> Tensor:
        """out[k, n, h] = <x[n, h], att[k, h]>; x [N, H, C], att [K, H, C], both contiguous -> [K, N, H]."""
        return (x * att.unsqueeze(1)).sum(-1)

    def head_scores_backward(self, grad_out: Tensor, x: Tensor, att: Tensor) -> Pair:
        """The gradients of x and att in `head_scores`."""
        grad_out = grad_out.unsqueeze(-1)
        return (grad_out * att.unsqueeze(1)).sum(0), (grad_out * x).sum(1)

    def dropout(self, x: Tensor, dropout: Dropout) -> Tensor:
        """x, contiguous and of any shape, times zero where a number is dropped and `dropout.scale` elsewhere."""
        return x * dropout.multiplier_of(x).to(x)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x [N, F] times weight [D, F] transposed, plus bias [D]; all contiguous."""
        return torch.nn.functional.linear(x, weight, bias)

    def product(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """Write x [N, F] times weight [D, F] transposed to out [N, D]; all contiguous, none with a gradient."""
        torch.mm(x, weight.t(), out=out)

    def add_weight_grad(self, grad_out: Tensor, x: Tensor, grad_weight: Tensor) -> None:
        """Add grad_out [N, D] transposed times x [N, F] to grad_weight [D, F]; all contiguous."""
        grad_weight.addmm_(grad_out.t(), x)

    def linear_backward(
        self, grad_out: Tensor, x: Tensor, weight: Tensor, needs_x: bool
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """The gradients of x, None unless `needs_x`, of weight and of bias."""
        return grad_out @ weight if needs_x else None, grad_out.t() @ x, grad_out.sum(0)

    def gru(
        self, x: Tensor, state: Tensor, weights: Pair, biases: tuple[Tensor | None, Tensor | None], keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The next state of a gated recurrent unit.

        Args:
            x: [N, K], what it reads.
            state: [N, F].
            weights: [3 F, K] of what it reads and [3 F, F] of the state: reset gate, update gate and news.
            biases: [3 F] of both, or None; all contiguous and of one type.
            keep: whether a backward will need the second result.

        Returns:
            The state [N, F]; and [N, 4 F], both gates, the news, and the state's product for these.
        """
        of_x, of_state = map(torch.nn.functional.linear, (x, state), weights, biases)
        (reset, update, news), (to_reset, to_update, share) = of_x.chunk(3, 1), of_state.chunk(3, 1)
        reset, update = (reset + to_reset).sigmoid(), (update + to_update).sigmoid()
        news = (news + reset * share).tanh()
        return (state - news) * update + news, torch.cat([reset, update, news, share], 1)

    def gru_backward(
        self, grad_out: Tensor, kept: Tensor, x: Tensor, state: Tensor, weights: Pair
    ) -> tuple[Pair, Pair, Pair]:
        """The gradients of x and state, of weights, and of biases in `gru`, from what it kept."""
        reset, update, news, share = kept.chunk(4, 1)
        grad_update = grad_out * (state - news) * update * (1 - update)
        grad_news = grad_out * (1 - update) * (1 - news * news)
        grad_reset = grad_news * share * reset * (1 - reset)
        of_x = torch.cat([grad_reset, grad_update, grad_news], 1)
        of_state = torch.cat([grad_reset, grad_update, grad_news * reset], 1)
        return (
            (of_x @ weights[0], of_state @ weights[1] + grad_out * update),
            (of_x.t() @ x, of_state.t() @ state),
            (of_x.sum(0), of_state.sum(0)),
        )

    def perceptron(self, x: Tensor, weights: Tensor) -> Tensor:
        """out[i] = relu(x[i] W + b) . v; x [N, K], weights [K + 2, D]: W, b and v, both contiguous -> [N]."""
        return (x @ weights[:-2] + weights[-2]).relu() @ weights[-1]

    def perceptron_backward(self, grad_out: Tensor, x: Tensor, weights: Tensor) -> Pair:
        """The gradients of x and weights in `perceptron`."""
        inner = (x @ weights[:-2] + weights[-2]).relu()
        grad_inner = grad_out.unsqueeze(1) * weights[-1] * (inner > 0)
        grads = [x.t() @ grad_inner, grad_inner.sum(0, keepdim=True), (grad_out @ inner).unsqueeze(0)]
        return grad_inner @ weights[:-2].t(), torch.cat(grads)

    def embedding_sum(self, table: Tensor, categories: Tensor, starts: Tensor) -> Tensor:
        """out[i] = sum over k of table[starts[k] + categories[i, k]], in the order of k.

        Args:
            table: [T, F], K tables one below the other.
            categories: [N, K] int64, each below the size of its table.
            starts: [K + 1] int64, where each table begins, and T.

        Raises:
            DatasetError: a category that its table lacks.
        """
        check_categories(categories, starts)
        out = table.new_zeros(len(categories), table.size(1))
        for column, start in zip(categories.unbind(1), starts.unbind(), strict=False):
            out = out + table[start + column]
        return out

    def embedding_sum_backward(self, grad_out: Tensor, categories: Tensor, starts: Tensor) -> Tensor:
        """grad_table [T, F] of `embedding_sum`."""
        rows = (categories + starts[:-1]).flatten()
        grad_table = grad_out.new_zeros(int(starts[-1]), grad_out.size(1))
        return grad_table.index_add(0, rows, grad_out.repeat_interleave(categories.size(1), 0))

    def batch_norm(
        self, x: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Normalise the columns of x [N, F], times weight [F] plus bias [F]; what is negative becomes 0 if `relu`.

        Returns:
            out [N, F], mean [F] and variance [F] of x, over N and not N - 1.
        """
        var, mean = torch.var_mean(x, 0, correction=0)
        return self.normalise(x, mean, var, weight, bias, eps, relu), mean, var

    def normalise(
        self, x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool
    ) -> Tensor:
        """Return what `batch_norm` would of a batch with these moments [F]: x [N, F], normalised by them."""
        out = (x - mean) * (weight * (var + eps).rsqrt()) + bias
        return out.relu() if relu else out

    def batch_norm_backward(
        self, x: Tensor, grad_out: Tensor, weight: Tensor, bias: Tensor, moments: Pair, eps: float, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of x, weight and bias, from what `batch_norm` was given and the moments it returned."""
        var, mean = torch.var_mean(x, 0, correction=0)  # again, for second derivatives go through them
        rstd = (var + eps).rsqrt()
        normal = (x - mean) * rstd
        if relu:
            grad_out = grad_out.masked_fill(normal * weight + bias <= 0, 0.0)
        grad_weight, grad_bias = (grad_out * normal).sum(0), grad_out.sum(0)
        grad_x = rstd * weight * (grad_out - (grad_bias + normal * grad_weight) / x.size(0))
        return grad_x, grad_weight, grad_bias


def check_categories(categories: Tensor, starts: Tensor) -> None:
    """Raise the DatasetError of the first category [N, K] that its table, of K from `starts` [K + 1] on, lacks."""
    sizes = starts.diff()
    lacking = ((categories < 0) | (categories >= sizes)).nonzero()
    if len(lacking):
        row, column = lacking[0].tolist()
        raise DatasetError(
            f"category {int(categories[row, column])} in row {row}, column {column} is not one of the "
            f"{int(sizes[column])} that its table of embeddings has, numbered from 0; correct the features"
        )
