"""Vanilla PyG on a sparse adjacency: torch's CSR, which PyG hands to `torch.sparse.mm`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from torch_geometric.nn import GCNConv, MessagePassing
from torch_geometric.utils import contains_self_loops, sort_edge_index, to_torch_csr_tensor

from gnnbench.backends import base
from gnnbench.errors import UnsupportedOp
from gnnbench.results.schema import Binding

if TYPE_CHECKING:
    from gnnbench.graph.union import Union


class Backend(base.Backend):
    """PyG as its documentation advises for speed, with the transposed adjacency (row = destination)."""

    name = "pyg-sparse"
    anywhere = True
    sorts = True

    @property
    def without_autocast(self) -> str:
        reason = "PyTorch multiplies no sparse matrix in bfloat16 on the CPU; leave it out, or take pyg"
        return reason if self.device.type == "cpu" else ""

    def prepare(self, model: torch.nn.Module, dataset: base.Inputs) -> base.Prepared:
        self.bind(model)
        self._check_loops(lambda: contains_self_loops(dataset.edge_index))
        reverse = dataset.edge_index.to(self.device).flip(0)
        edge_index = sort_edge_index(reverse, num_nodes=dataset.num_nodes)
        # Called coalesced though duplicates may remain: PyG would drop them, and so change every sum.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that torch's CSR is in beta, and does not check what PyG sorted
            adj_t = to_torch_csr_tensor(edge_index, size=dataset.num_nodes, is_coalesced=True)
        return base.Prepared(adj_t, [])

    def bind(self, model: torch.nn.Module) -> list[Binding]:
        convs = [conv for conv in model.modules() if isinstance(conv, MessagePassing)]
        reasons = [
            f"PyG has no sparse product for {type(conv).__name__} and would pass messages over edges, "
            "as 'pyg' does"
            for conv in convs
            if not conv.fuse
        ]
        self._refuse(dict.fromkeys(reasons))
        self._adds_loops = any(isinstance(conv, GCNConv) and conv.add_self_loops for conv in convs)
        return []

    def collate(
        self, union: Union, graphs: torch.Tensor, x: torch.Tensor, edge_attr: torch.Tensor | None, *, pooled: bool
    ) -> base.Collated:
        graph, x, ptr, _ = union.collate(graphs, x)
        self._check_loops(lambda: bool((graph.row == graph.col).any()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            size, ones = (graph.num_rows, graph.num_rows), x.new_ones(graph.num_edges, dtype=torch.float32)
            adj_t = torch.sparse_csr_tensor(graph.rowptr, graph.col.long(), ones, size)
        return base.Collated(x, adj_t, base.owners(ptr) if pooled else None)

    def _check_loops(self, has_loops: Callable[[], bool]) -> None:
        if self._adds_loops and has_loops():
            self._refuse(["the graph has self-loops, and PyG's GCNConv adds a second one on a sparse adjacency"])

    def _refuse(self, reasons: Iterable[str]) -> None:
        if reasons:
            raise UnsupportedOp(f"this model on backend {self.name!r}", reasons)
