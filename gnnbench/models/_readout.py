"""From the nodes of graphs to the graphs."""

from __future__ import annotations

from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool

POOLS = {"sum": global_add_pool, "mean": global_mean_pool, "max": global_max_pool}


class Readout(Module):
    """PyG's pooling; backends with kernels put their own in place of `forward`."""

    def __init__(self, reduce: str) -> None:
        super().__init__()
        self.reduce = reduce

    def forward(self, x: Tensor, segments: tuple[Tensor, int]) -> Tensor:
        """[B, C] of nodes [N, C], of which `segments` says the graph [N] int64, and how many graphs there are."""
        graph_of_node, graphs = segments
        pooled: Tensor = POOLS[self.reduce](x, graph_of_node, graphs)
        return pooled
