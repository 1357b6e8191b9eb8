"""Vanilla PyG on a sparse adjacency: torch's CSR, which PyG hands to `torch.sparse.mm`."""

from __future__ import annotations

import warnings

import torch
from torch_geometric.nn import GCNConv, MessagePassing
from torch_geometric.utils import contains_self_loops, sort_edge_index, to_torch_csr_tensor

from gnnbench.backends import base
from gnnbench.datasets import NodeDataset
from gnnbench.errors import UnsupportedOp


class Backend(base.Backend):
    """PyG as its documentation advises for speed, with the transposed adjacency (row = destination)."""

    name = "pyg-sparse"
    anywhere = True

    def prepare(self, model: torch.nn.Module, dataset: NodeDataset) -> base.Prepared:
        if reasons := _unsupported(model, dataset.edge_index):
            raise UnsupportedOp(f"this model on backend {self.name!r}", reasons)
        reverse = dataset.edge_index.to(self.device).flip(0)
        edge_index = sort_edge_index(reverse, num_nodes=dataset.num_nodes)
        # Called coalesced though duplicates may remain: PyG would drop them, and so change every sum.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that torch's CSR is in beta, and does not check what PyG sorted
            adj_t = to_torch_csr_tensor(edge_index, size=dataset.num_nodes, is_coalesced=True)
        return base.Prepared(adj_t, [])


def _unsupported(model: torch.nn.Module, edge_index: torch.Tensor) -> list[str]:
    convs = [conv for conv in model.modules() if isinstance(conv, MessagePassing)]
    reasons = [
        f"PyG has no sparse product for {type(conv).__name__} and would pass messages over edges, as 'pyg' does"
        for conv in convs
        if not conv.fuse
    ]
    adds_loops = any(isinstance(conv, GCNConv) and conv.add_self_loops for conv in convs)
    if adds_loops and contains_self_loops(edge_index):
        reasons.append("the graph has self-loops, and PyG's GCNConv adds a second one on a sparse adjacency")
    return list(dict.fromkeys(reasons))
