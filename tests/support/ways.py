"""How the drop-in runs every layer of PyG, as a table of Markdown."""

from __future__ import annotations

from pathlib import Path

import torch

from gnnbench.benchmarks import layers as benchmark
from gnnbench.datasets import NodeDataset
from gnnbench.errors import ConfigError
from gnnbench.models.conv import kinds
from gnnbench.report import tables
from gnnbench.report.tables import Cell, Table
from tests.support import absent


def table(_: Path) -> str:
    """One row per message-passing layer of PyG: how the drop-in runs it, found by running it on a small graph."""
    nodes, drawn = 100, torch.Generator().manual_seed(0)
    edge_index = torch.randint(nodes, (2, 800), generator=drawn)
    mask = torch.ones(nodes, dtype=torch.bool)
    dataset = NodeDataset(
        name="random",
        edge_index=edge_index[:, edge_index[0] != edge_index[1]],
        x=torch.randn(nodes, 8, generator=drawn),
        y=torch.arange(nodes) % 3,
        **dict.fromkeys(("train_mask", "val_mask", "test_mask"), mask),
        num_classes=3,
    )
    rows = [[Cell(f"`{name}`"), *map(Cell, _way(name, dataset))] for name in kinds()]
    return tables.markdown(Table(["layer", "runs by", "as"], rows, prose=(0, 1, 2)))


def _way(name: str, dataset: NodeDataset) -> tuple[str, str]:
    try:
        way, reason = benchmark.way(name, dataset, backend="isplib")
    except ConfigError as error:
        reason = str(error).rpartition("Error: ")[2]
        try:
            with absent.supplied():
                way, _ = benchmark.way(name, dataset, backend="isplib")
        except ConfigError:
            return "not tried", reason
        return f"{way}, with {absent.PACKAGE}", "tried with plain PyTorch in place of that package"
    return way, reason or "–"
