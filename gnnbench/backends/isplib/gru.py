"""Gated recurrent units, by `cython_kernels/gru.pyx`."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled, linear
from gnnbench.backends.isplib._base import BaseKernels, computes
from gnnbench.backends.isplib.workspace import in_huge_pages
from gnnbench.ops.layers import Pair

native = _compiled.load("gru")

CHUNKS, CHUNK_ROWS = 256, 512  # at most so many pieces of the rows, for threads, of at least so many rows


class GruKernels(BaseKernels):
    """Units a chunk of rows at a time, whose products stay in the second cache."""

    def gru(
        self, x: Tensor, state: Tensor, weights: Pair, biases: tuple[Tensor | None, Tensor | None], keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        if not _fits(x, state, weights):
            return super().gru(x, state, weights, biases, keep)
        level, sizes = linear.level(self, "forward", *weights), _sizes(state)
        layers = [
            {**linear.layer(rows, weight), "bias": bias, "chunks": sizes["chunks"]}
            for rows, weight, bias in zip((x, state), weights, biases, strict=True)
        ]
        kept = in_huge_pages(state.new_empty(len(state), 4 * state.size(1))) if keep else None
        out = in_huge_pages(torch.empty_like(state))
        native.forward(self.isa, level, self.threads, *layers, **sizes, state=state, kept=kept, out=out)
        return out, kept

    def gru_backward(
        self, grad_out: Tensor, kept: Tensor, x: Tensor, state: Tensor, weights: Pair
    ) -> tuple[Pair, Pair, Pair]:
        if not _fits(x, state, weights) or not computes(grad_out, kept):
            return super().gru_backward(grad_out, kept, x, state, weights)
        level, sizes = linear.level(self, "backward", *weights), _sizes(state)
        grad_x, grad_state = (in_huge_pages(torch.empty_like(each)) for each in (x, state))
        layers = [
            {
                **linear.layer(rows, weight),
                "chunks": sizes["chunks"],
                "grad_weight": torch.empty_like(weight),
                "grad_bias": weight.new_empty(len(weight)),
            }
            for rows, weight in zip((x, state), weights, strict=True)
        ]
        layers[0]["grad_x"] = grad_x
        fields = {"state": state, "grad_out": grad_out, "kept": kept, "out": grad_state}
        native.backward(self.isa, level, self.threads, *layers, **sizes, **fields)
        of_weights, of_biases = ([layer[name] for layer in layers] for name in ("grad_weight", "grad_bias"))
        return (grad_x, grad_state), (of_weights[0], of_weights[1]), (of_biases[0], of_biases[1])


def _fits(x: Tensor, state: Tensor, weights: Pair) -> bool:
    return (
        linear.fits(x, weights[0])
        and linear.fits(state, weights[1])
        and len(x) == len(state)
        and len(weights[0]) == len(weights[1]) == 3 * state.size(1)
    )


def _sizes(state: Tensor) -> dict[str, int]:
    chunks = max(1, min(CHUNKS, len(state) // CHUNK_ROWS))
    return {"rows": len(state), "width": state.size(1), "chunks": chunks}
