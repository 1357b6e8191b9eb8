"""FusedMM and its gradients, one pass over the rows each, by `cython_kernels/fusedmm.pyx`."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels, csr
from gnnbench.graph import Graph
from gnnbench.ops.edge_fn import EDGE_FNS

native = _compiled.load("fusedmm")


class FusedmmKernels(BaseKernels):
    """Scores, a function of them and weighted sums, none of which is kept per edge."""

    def fusedmm(self, graph: Graph, x: Tensor, y: Tensor, edge_fn: str) -> Tensor:
        return self._pass(graph, x, y, edge_fn)

    def fusedmm_grad_x(self, graph: Graph, x: Tensor, y: Tensor, edge_fn: str, grad_out: Tensor) -> Tensor:
        return self._pass(graph, x, y, edge_fn, my_grad=grad_out.contiguous())

    def fusedmm_grad_y(self, graph: Graph, x: Tensor, y: Tensor, edge_fn: str, grad_out: Tensor) -> Tensor:
        return self._pass(graph.transpose, y, x, edge_fn, their_grad=grad_out.contiguous())

    def _pass(
        self,
        graph: Graph,
        mine: Tensor,
        theirs: Tensor,
        edge_fn: str,
        my_grad: Tensor | None = None,
        their_grad: Tensor | None = None,
    ) -> Tensor:
        mine, theirs = mine.contiguous(), theirs.contiguous()
        out = torch.empty_like(mine)
        heads, width = (1, mine.size(1)) if mine.dim() == 2 else mine.shape[1:]
        if out.numel():
            tensors = {"mine": mine, "theirs": theirs, "my_grad": my_grad, "their_grad": their_grad, "out": out}
            sizes = {**csr(graph), "heads": heads, "width": width}
            native.fusedmm(self.isa, self.threads, **tensors, **sizes, fn=list(EDGE_FNS).index(edge_fn))
        return out
