"""gnnbench: train, compare and accelerate graph neural networks. Nothing heavy is imported before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnnbench.graph import Graph as Graph

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "Graph":
        from gnnbench.graph import Graph

        return Graph
    raise AttributeError(f"module 'gnnbench' has no attribute {name!r}")
