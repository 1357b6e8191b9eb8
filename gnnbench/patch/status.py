"""Tally of what ran accelerated, what was left to PyG, and why."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass

logger = logging.getLogger("gnnbench")
SHOWN = 10  # names of layers


@dataclass(frozen=True)
class Status:
    """Counts of what `patch_pyg`, `patched`, `accelerated` and `accelerate` have done in this process so far.

    Attributes:
        patched: names of what is replaced at this moment.
        accelerated: how many calls of each ran on our kernels.
        ways: how each ran: "kernels" of its own, "spmm", "fused" or "streamed", or "kept" from a call before; the
            last of several.
        declined: how many calls of each PyG ran itself, by reason.
        missing: why no kernels run what is patched, by type of device, where this machine has one.
        graphs: Graphs kept for calls to come.
        graph_bytes: their memory, with everything derived from them, and with norms.
        graph_limit_bytes: what the Graphs of each device may hold together; the oldest go first.
        graphs_found, graphs_built: how often the Graph of a call was there, and how often not.
    """

    patched: tuple[str, ...]
    accelerated: dict[str, int]
    ways: dict[str, str]
    declined: dict[tuple[str, str], int]
    missing: dict[str, str]
    graphs: int
    graph_bytes: int
    graph_limit_bytes: int
    graphs_found: int
    graphs_built: int

    def __str__(self) -> str:
        named = [name for name in self.patched if not name[0].isupper()]
        layers = [name for name in self.patched if name[0].isupper()]
        named = [*(layers if len(layers) <= SHOWN else [f"{len(layers)} layers"]), *named]
        lines = [f"patched: {', '.join(named) or 'nothing'}"]
        lines += [f"no kernels on {device}, which is left to PyG: {why}" for device, why in self.missing.items()]
        lines += [
            f"accelerated: {name}, {count} calls, {self.ways[name]}" for name, count in self.accelerated.items()
        ]
        lines += [f"declined: {name}, {count} calls: {why}" for (name, why), count in self.declined.items()]
        held, limit = self.graph_bytes / 2**20, self.graph_limit_bytes / 2**20
        lines.append(
            f"graphs: {self.graphs} kept in {held:.1f} of {limit:.0f} MiB; "
            f"found {self.graphs_found} times, built {self.graphs_built}"
        )
        return "\n".join(lines)


class Tally:
    """Counts of calls, safe to add to from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Start anew."""
        self._accelerated: Counter[str] = Counter()
        self._ways: dict[str, str] = {}
        self._declined: Counter[tuple[str, str]] = Counter()

    def accelerated(self, name: str, way: str) -> None:
        """Count a call of `name` that ran on our kernels."""
        with self._lock:
            self._accelerated[name] += 1
            self._ways[name] = way

    def declined(self, name: str, reason: str) -> None:
        """Count a call of `name` that was left to PyG; a new reason is logged."""
        key = name, reason
        with self._lock:
            count = self._declined[key] = self._declined[key] + 1
        if count == 1:
            logger.info("%s runs PyG's own code: %s", name, reason)

    def counts(self) -> tuple[dict[str, int], dict[str, str], dict[tuple[str, str], int]]:
        """Copies of (accelerated, ways, declined)."""
        with self._lock:
            return dict(self._accelerated), dict(self._ways), dict(self._declined)


TALLY = Tally()
