"""The graphs of a suite: synthetic ones in the shape of real ones, and batches of many small graphs."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from typing import Any, Literal

import torch
from torch import Tensor

from gnnbench import datasets
from gnnbench.datasets import NodeDataset, Roots, synthetic
from gnnbench.errors import DatasetError

Scale = Literal["full", "tiny"]
BATCH = "batch"
GRAPHS = ("cora", "ogbn-arxiv", BATCH, "reddit", "ogbn-proteins", "ogbn-products")
TINY = {"nodes": 60, "edges": 400, "features": 128, "classes": 4}
# Graphs of a batch: how many, and the fewest and most nodes of one.
MEMBERS: dict[Scale, tuple[int, int, int]] = {"full": (512, 30, 150), "tiny": (3, 4, 8)}
IN_DEGREE, FEATURES, CLASSES = 6, 64, 10


def load(name: str, scale: Scale, roots: Roots) -> NodeDataset:
    """One of `GRAPHS`.

    Raises:
        DatasetError: too large for the machine.
    """
    return (
        _batch(*MEMBERS[scale]) if name == BATCH else datasets.single(datasets.load(_config(name, scale), roots))
    )


def label(name: str) -> str:
    """Its name in records, so that nobody takes it for the real graph."""
    return f"synthetic {name}" if name != BATCH else "batch of random graphs"


def prepare(names: Sequence[str], roots: Roots) -> None:
    """Generate graphs of full size that are not in the cache, side by side in a process each."""
    specs = [name for name in names if name != BATCH]
    if specs:
        with ProcessPoolExecutor(len(specs), multiprocessing.get_context("spawn")) as pool:
            list(pool.map(_generate, specs, [roots] * len(specs)))


def moved(dataset: NodeDataset, device: torch.device) -> NodeDataset:
    """Move a dataset's tensors to `device`."""
    tensors: dict[str, Any] = {
        name: value.to(device) for name, value in vars(dataset).items() if isinstance(value, Tensor)
    }
    return dataset.changed(**tensors)


def _generate(name: str, roots: Roots) -> None:
    with suppress(DatasetError):  # which is met again when the graph is needed
        datasets.load(_config(name, "full"), roots)


def _config(name: str, scale: Scale) -> synthetic.Config:
    return synthetic.Config(preset=name, **(TINY if scale == "tiny" else {}))


def _batch(count: int, fewest: int, most: int) -> NodeDataset:
    """`count` random graphs without edges between them, as PyG's loader puts them together."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(fewest, most + 1, (count,), generator=generator)
    nodes = int(sizes.sum())
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    size = sizes.repeat_interleave(sizes)
    dst = torch.arange(nodes).repeat_interleave(IN_DEGREE)
    apart = 1 + (torch.rand(dst.numel(), generator=generator, dtype=torch.float64) * (size[dst] - 1)).long()
    src = first[dst] + (dst - first[dst] + apart) % size[dst]  # never dst itself
    labels = torch.randint(CLASSES, (nodes,), generator=generator)
    part = torch.arange(nodes) % 4
    return NodeDataset(
        name=f"batch of {count} random graphs",
        edge_index=torch.stack([src, dst]),
        x=torch.randn(nodes, FEATURES, generator=generator),
        y=labels,
        train_mask=part < 2,
        val_mask=part == 2,
        test_mask=part == 3,
        num_classes=CLASSES,
        metric="accuracy",
        score=lambda logits, y: float((logits.argmax(-1) == y).float().mean()),
        made_up=["graph", "features", "labels", "split"],
    )
