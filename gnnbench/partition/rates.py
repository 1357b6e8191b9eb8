"""How fast this machine sums over the edges of a part, multiplies by weights, and passes over arrays."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from functools import partial

import torch

from gnnbench.graph import Graph, Layout
from gnnbench.ops.kernels import Kernels
from gnnbench.partition.estimate import Rates, Share

LEAST_S = 0.2  # of repeats of one measurement
STREAM_BYTES = 1 << 27  # of each array; more than the caches hold
MOST_EDGES = 1 << 23  # of a part that is drawn, and
MOST_COLUMNS = 1 << 20
MOST_ROWS = 1 << 16  # of a dense product


def measure(
    graph: Graph,
    kernels: Kernels,
    widths: Iterable[int],
    hidden: int,
    program_bytes: int,
    now: Callable[[], float],
) -> Rates:
    """Rates on the edges of `graph`, in about half a second per width; dense products have `hidden` columns.

    Args:
        program_bytes: memory of a process that trains on next to nothing.
        now: a clock.
    """
    forward, backward, edges = {}, {}, max(1, graph.num_edges)
    transpose = graph.transpose
    without = graph.nbytes
    for each in (graph, transpose):
        kernels.plan(each)
    for width in sorted({*widths}):
        x, grad = torch.ones(graph.num_cols, width), torch.ones(graph.num_rows, width)
        forward[width] = edges / _seconds(partial(kernels.spmm, graph, x, None, "sum"), now)
        backward[width] = edges / _seconds(partial(kernels.spmm, transpose, grad, None, "sum"), now)
    rows = max(1, min(graph.num_rows, MOST_ROWS))
    x, weight = torch.ones(rows, hidden), torch.ones(hidden, hidden)
    a, b, c = torch.ones(3, STREAM_BYTES // 4)
    return Rates(
        threads=torch.get_num_threads(),
        edges_per_s=forward,
        edges_per_s_backward=backward,
        dense_flop_per_s=2 * rows * hidden**2 / _seconds(lambda: x @ weight, now),
        stream_bytes_per_s=3 * a.nbytes / _seconds(lambda: torch.add(b, c, out=a), now),
        program_bytes=program_bytes,
        kernel_bytes_per_edge=(graph.nbytes - without) / edges / (1 if transpose is graph else 2),
    )


def drawn(share: Share, layout: Layout) -> Graph:
    """Random edges between as many rows and columns as a part has, but for bounds on both."""
    columns = min(round(share.nodes + share.halo), MOST_COLUMNS)
    edges = max(1, min(round(share.edges), MOST_EDGES))
    rows = max(1, min(round(edges * share.nodes / max(1.0, share.edges)), columns))
    generator = torch.Generator().manual_seed(0)
    src = torch.randint(columns, (edges,), generator=generator)
    dst = torch.randint(rows, (edges,), generator=generator)
    return Graph.from_edge_index(torch.stack([src, dst]), rows, columns, layout)


def _seconds(call: Callable[[], object], now: Callable[[], float]) -> float:
    """Median of one call; the first one is not timed."""
    call()
    times: list[float] = []
    while sum(times) < LEAST_S:
        start = now()
        call()
        times.append(now() - start)
    return statistics.median(times)
