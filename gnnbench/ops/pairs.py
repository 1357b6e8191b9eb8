"""Functions of pairs of nodes, as decoders of links compute them: neither keeps a row of features for a pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops._workload import Workload
from gnnbench.ops.edge import sddmm
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.stream import Operands, Place, stream

ROWS_OF_PAIR = 1  # rows of features that count for each pair of a chunk; it keeps more, but fewer pairs are slower
AT_ONCE = 4  # chunks, below which a function is not worth evaluating again in backward


def pair_dot(kernels: Kernels, x_src: Tensor, x_dst: Tensor, pairs: Tensor) -> Tensor:
    """Dot products of both ends: out[p] = <x_src[pairs[0, p]], x_dst[pairs[1, p]]>.

    The pairs are the edges of a graph, on which this is `sddmm` and each gradient an `spmm`. They are sorted at
    the first call, and not again until `pairs` is edited or freed.

    Args:
        x_src: [N, F].
        x_dst: [M, F], which may be x_src.
        pairs: [2, P] int64 of sources below N and destinations below M, in any order and repeated or not.

    Returns:
        [P], differentiable in x_src and x_dst to any order.

    Raises:
        GraphError: a node that is not there, or `pairs` of another shape or type.
        UnsupportedOp: features that do not fit together, or that the kernels do not take.
    """
    return edge_dot(kernels, pair_graph(kernels, x_src, x_dst, pairs), x_src, x_dst)


def edge_dot(kernels: Kernels, graph: Graph, x_src: Tensor, x_dst: Tensor) -> Tensor:
    """`pair_dot` of the edges of a graph of M rows and N columns, in the order that they were given in."""
    score = sddmm(kernels, graph, x_dst, x_src)
    if graph.edge_id is None:
        return score
    # Written, not gathered, so that the gradient is gathered and not added up.
    return score.new_empty(score.shape).scatter(0, graph.edge_id.long(), score)


def pair_map(
    kernels: Kernels,
    function: Callable[[Tensor, Tensor], Tensor],
    x_src: Tensor,
    x_dst: Tensor,
    pairs: Tensor,
    *,
    parameters: Sequence[Tensor] = (),
    draws: bool = False,
) -> Tensor:
    """Evaluate out[p] = function(x_src[pairs[0, p]], x_dst[pairs[1, p]]), some pairs at a time.

    Memory is that of a chunk of pairs, which backward evaluates again; few pairs are one chunk, evaluated once.

    Args:
        function: rows [p, F] of both ends -> [p, ...], each row from its own pair alone, such as a decoder.
        x_src, x_dst, pairs: as of `pair_dot`.
        parameters: all that `function` has and that need gradients, such as `list(decoder.parameters())`.
        draws: whether it draws random numbers, such as dropout; backward then draws them again.

    Returns:
        [P, ...], differentiable in x_src, x_dst and the parameters to any order.

    Raises:
        GraphError, UnsupportedOp: as `pair_dot`.
    """
    graph = pair_graph(kernels, x_src, x_dst, pairs)
    chunk = max(1, kernels.chunk_bytes // max(1, ROWS_OF_PAIR * x_src.size(1) * x_src.element_size()))
    parameter: Place = "parameter"
    (out,) = stream(
        kernels,
        graph,
        lambda _, shares: (function(shares.of(0), shares.of(1)),),
        Operands([x_src, x_dst, *parameters], ["source", "destination", *[parameter] * len(parameters)]),
        edges=graph.num_edges if graph.num_edges <= AT_ONCE * chunk else chunk,
        over_edges=[True],
        draws=draws,
    )
    return out


def pair_graph(kernels: Kernels, x_src: Tensor, x_dst: Tensor, pairs: Tensor) -> Graph:
    """The graph of M rows and N columns with `pairs` as edges, kept as long as these; errors as `pair_dot`."""
    if x_src.dim() != 2 or x_src.shape[1:] != x_dst.shape[1:]:
        raise UnsupportedOp("pairs", [f"features have shapes {list(x_src.shape)} and {list(x_dst.shape)}"])
    return kernels.pair_graphs.graph(pairs, x_dst.size(0), x_src.size(0))


def _of_edges(kernels: Kernels, graph: Graph, x_src: Tensor, x_dst: Tensor) -> Tensor:
    pairs = graph.once("edges as pairs", lambda: torch.stack([graph.col.long(), graph.row]))
    return pair_dot(kernels, x_src, x_dst, pairs)


WORKLOADS = {
    "pair_dot": Workload(
        inputs={"x_src": "MC", "x_dst": "NC"},
        out="E",
        call=_of_edges,
        gathers={"forward": 1, "backward": 2},
    )
}
