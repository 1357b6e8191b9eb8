"""Print what the drop-in believes that a Graph costs and saves here, beside what it does: microseconds.

    python tests/measure/prices.py [--channels N] [--repeats N]

On random graphs, forward alone and with backward: the first call on a new `edge_index` over a later one, and
PyG's call over that, all on one core. Minima of many calls.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric import nn, utils

import gnnbench
from gnnbench.convs._cost import Price
from gnnbench.measure import clock
from gnnbench.patch.forward import forward_of
from gnnbench.patch.functions import GROUPS

EDGES = (100, 1_000, 10_000, 100_000)
DEGREE = 3  # mean
HEADS = 8


class Case(NamedTuple):
    """A call on the features [N, C] of nodes or [E, C] of edges, and its price for so many edges."""

    call: Callable[[Tensor, Tensor], Tensor]
    price: Callable[[Tensor, int], Price]
    of_edges: bool = False


def cases(channels: int) -> dict[str, Case]:
    convs = {
        "sum": nn.GINConv(torch.nn.Identity()),
        "GCN": nn.GCNConv(channels, channels),
        "GAT": nn.GATConv(channels, channels // HEADS, HEADS),
    }
    result = {
        name: Case(conv, lambda x, edges, conv=conv: forward_of(type(conv)).price(conv, x, edges))
        for name, conv in convs.items()
    }
    return result | {"groups": Case(lambda x, index: utils.softmax(x, index[1]), GROUPS.price, of_edges=True)}


def seconds(case: Case, x: Tensor, edge_index: Tensor, trained: bool) -> float:
    start = clock.cpu()
    with torch.set_grad_enabled(trained):
        out = case.call(x, edge_index)
    if trained:
        out.backward(out.detach())
    return clock.cpu() - start


def measured(case: Case, x: Tensor, edge_index: Tensor, trained: bool, repeats: int) -> Price:
    first, later, pyg = [], [], []
    for _ in range(repeats):
        with gnnbench.patched("isplib", strict=True):
            again = edge_index.clone()
            first.append(seconds(case, x, again, trained))
            later += [seconds(case, x, again, trained) for _ in range(3)]
        with gnnbench.unpatched():
            pyg += [seconds(case, x, again, trained) for _ in range(3)]
    return Price((min(first) - min(later)) * 1e9, (min(pyg) - min(later)) * 1e9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':7} {'backward':8} {'edges':>8} {'build':>16} {'saved':>16}   (predicted, measured)")
    for name, case in cases(options.channels).items():
        for trained in (False, True):
            for edges in EDGES:
                nodes = edges // DEGREE
                edge_index = torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(0))
                width = HEADS if case.of_edges else options.channels
                x = torch.randn(edges if case.of_edges else nodes, width, requires_grad=trained)
                repeats = max(options.repeats * 1_000 // max(edges, 1_000), 10)
                here = measured(case, x, edge_index, trained, repeats)
                with torch.set_grad_enabled(trained):
                    there = case.price(x, edges)
                build, saved = (
                    f"{said / 1e3:8.0f} {true / 1e3:7.0f}" for said, true in zip(there, here, strict=True)
                )
                print(f"{name:7} {'yes' if trained else 'no':8} {edges:8,} {build:>16} {saved:>16}", flush=True)


if __name__ == "__main__":
    main()
