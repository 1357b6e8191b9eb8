"""Links of a graph: what a decoder is made for, and what it is given."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import torch

    from gnnbench.config import ModelConfig


def width_of_node(config: ModelConfig) -> int:
    """Return the width of what the encoder of a model of links gives for a node."""
    return config.out_channels or config.hidden


class Links(NamedTuple):
    """A graph whose links a model predicts.

    Attributes:
        nodes: of the graph.
        relations: types of links.
        embedding: whether vectors are trained for nodes, in place of features.
    """

    nodes: int
    relations: int = 1
    embedding: bool = False


class Pairs(NamedTuple):
    """Pairs of nodes to score.

    Attributes:
        nodes: [2, P] int64, rows of the vectors of nodes.
        relation: [P] int64 type of each; None of one type.
        phase: surrounds the parts of a forward.
    """

    nodes: torch.Tensor
    relation: torch.Tensor | None = None
    phase: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
