"""Graphs that are hard to take apart, and assignments of their nodes."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from gnnbench.datasets import NodeDataset


def dataset(nodes: int, edges: int, seed: int) -> NodeDataset:
    """Half of the edges come from node 0 and a quarter run into it; some are there twice, some nodes have none."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(max(1, nodes * 2 // 3), (2, edges), generator=generator)
    edge_index[0, : edges // 2], edge_index[1, edges * 3 // 4 :] = 0, 0
    edge_index = edge_index[:, torch.randperm(edges, generator=generator)]
    masks = torch.randint(3, (nodes,), generator=generator)
    return NodeDataset(
        name="hub",
        edge_index=edge_index,
        x=torch.randn(nodes, 3, generator=generator),
        y=torch.randint(4, (nodes,), generator=generator),
        train_mask=masks == 0,
        val_mask=masks == 1,
        test_mask=masks == 2,
        num_classes=4,
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[NodeDataset, Tensor, int]:
    """A graph, an assignment that leaves some parts empty, and the number of parts."""
    nodes, edges, seed = draw(st.integers(1, 40)), draw(st.integers(0, 150)), draw(st.integers(0, 2**30))
    parts = draw(st.integers(1, 6))
    used = draw(st.lists(st.integers(0, parts - 1), min_size=1))
    choice = torch.randint(len(used), (nodes,), generator=torch.Generator().manual_seed(seed + 1))
    return dataset(nodes, edges, seed), torch.tensor(used)[choice], parts
