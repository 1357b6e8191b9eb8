"""The edges of one conv, where each has its own."""

from __future__ import annotations

from typing import Any, NamedTuple


class Layer(NamedTuple):
    """Edges that one conv of a model aggregates over: from any of its inputs to the first `rows` of them."""

    adj: Any
    rows: int
