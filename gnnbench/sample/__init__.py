"""NeighborSampler: sampled neighbourhoods for PyG's loaders, without pyg-lib or torch-sparse."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import BaseSampler, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

from gnnbench.backends import isplib
from gnnbench.backends.isplib.sample import Sample
from gnnbench.errors import BackendUnavailable, ConfigError, GraphError, UnsupportedOp
from gnnbench.graph import Graph


class NeighborSampler(BaseSampler):
    """Uniform sampling of in-neighbours, hop by hop, for `NodeLoader`, `NeighborLoader` and their kin.

    A batch depends on its seeds in their order, `seed` and `epoch`, and on nothing else: it is the same whatever
    thread, worker or machine draws it. It is the work of one thread, and many may draw at once. Where epochs have
    the same batches, as without `shuffle`, set `epoch` before each to draw anew; workers that persist learn of it
    too.

    The output is that of PyG's `NeighborSampler` on a homogeneous graph with `subgraph_type="directional"`: `node`
    [n] with the seeds first, `row` and `col` [e] by their places in it, sorted by `col`, and numbers of nodes and
    edges by hop, as `trim_to_layer` takes them. `edge` [e] holds positions in `data.edge_index`, so that there is
    no `edge_permutation`. Method: Hamilton, Ying and Leskovec 2017, "Inductive representation learning on large
    graphs".

    Args:
        data: a PyG `Data` with `edge_index` [2, E], or a square `Graph`; its edges are copied and sorted once.
        num_neighbors: in-edges to sample of each node, for each hop; -1 takes all.
        replace: whether an edge can be drawn more than once; a node with in-edges then has exactly as many.
        seed: any integer; another one draws other batches.

    Raises:
        BackendUnavailable: the kernels are not built.
        ConfigError: `num_neighbors` is empty or has what is no number from -1 up.
        GraphError: `data` has no `edge_index`, or one that is no graph of at most 2^31 - 1 nodes and edges.
        UnsupportedOp: other kinds of data, such as heterogeneous graphs.
    """

    def __init__(
        self, data: Data | Graph, num_neighbors: Sequence[int], *, replace: bool = False, seed: int = 0
    ) -> None:
        if reasons := isplib.Backend.unavailable():
            raise BackendUnavailable(f"NeighborSampler is unavailable: {'; '.join(reasons)}")
        self.num_neighbors = checked_fanouts(num_neighbors)
        self.replace, self.seed = replace, seed
        graph = data if isinstance(data, Graph) else _graph_of(data)
        if graph.num_rows != graph.num_cols or graph.device.type != "cpu":
            raise GraphError(f"NeighborSampler takes a square graph in main memory, but not {graph}")
        self.neighbors = isplib.Neighbors(graph.rowptr, graph.col, graph.edge_id)
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    @property
    def epoch(self) -> int:
        """Return the number that tells the draws of an epoch from those of another, here and in its workers."""
        return int(self._epoch)

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch[0] = epoch

    def sample_from_nodes(self, index: Any) -> SamplerOutput:
        """The neighbourhood of the nodes of a PyG `NodeSamplerInput`; `metadata` is its (input_id, None).

        Raises:
            ConfigError: no seeds, or one that is no node.
            UnsupportedOp: seeds with times or types.
        """
        _check_plain(index)
        return node_sample(index, self._output)

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> SamplerOutput:
        """Draw that of both ends of the edges of a PyG `EdgeSamplerInput`, with PyG's `metadata`; errors as above.

        Ends of negative samples are drawn by PyG, from torch's random numbers.
        """
        _check_plain(index)
        return edge_sample(index, self._output, self.neighbors.num_nodes, False, None, neg_sampling)

    def sample(self, seeds: Tensor) -> Sample:
        """The neighbourhood of `seeds` [n], of any integer type.

        Raises:
            ConfigError: no seeds, or one that is no node.
        """
        seeds = checked_seeds(seeds)
        source = f"{self.seed} {self.epoch} ".encode() + seeds.numpy().tobytes()
        key = int.from_bytes(hashlib.blake2b(source, digest_size=8).digest(), "little", signed=True)
        return self.neighbors.sample(seeds, self.num_neighbors, key, self.replace)

    def _output(self, seeds: Tensor, seed_time: None = None) -> SamplerOutput:
        drawn = self.sample(seeds)
        return SamplerOutput(*drawn[:4], num_sampled_nodes=drawn.num_nodes, num_sampled_edges=drawn.num_edges)


def checked_fanouts(num_neighbors: Sequence[int]) -> list[int]:
    """Numbers of neighbours by hop, or ConfigError for what is none."""
    given = isinstance(num_neighbors, (list, tuple)) and len(num_neighbors)
    if not given or not all(type(fanout) is int and fanout >= -1 for fanout in num_neighbors):
        raise ConfigError(
            f"num_neighbors is {num_neighbors}, but must list a whole number for each hop, -1 for all neighbours"
        )
    return [*num_neighbors]


def checked_seeds(seeds: Tensor) -> Tensor:
    """Seeds [n] as int64 in main memory, or ConfigError for what is none."""
    if seeds.dim() != 1 or not seeds.numel() or seeds.is_floating_point() or seeds.dtype == torch.bool:
        raise ConfigError(
            f"seeds are {seeds.dtype} of shape {list(seeds.shape)}, but must be a vector of at least one integer"
        )
    return seeds.to("cpu", torch.int64).contiguous()


def _graph_of(data: Any) -> Graph:
    if not isinstance(data, Data):
        raise UnsupportedOp("NeighborSampler", [f"it takes a PyG Data or a Graph, but not {type(data).__name__}"])
    if data.edge_index is None:
        raise GraphError("NeighborSampler samples from data.edge_index, which is missing")
    edge_index = data.edge_index.cpu()
    return Graph.from_edge_index(edge_index, data.num_nodes, layout=isplib.IsplibKernels())


def _check_plain(index: Any) -> None:
    given = [name for name in ("time", "input_type") if getattr(index, name, None) is not None]
    if given:
        raise UnsupportedOp("NeighborSampler", [f"it samples without {name}, which was given" for name in given])
