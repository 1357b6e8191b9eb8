"""The Chrome trace of a profile: memory over time is read from it, and it is kept for the browser."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

from gnnbench.profiling._ranges import EPOCH
from gnnbench.profiling._record import Memory
from gnnbench.results import files

POINTS = 1000  # of memory over time
DEVICES = {0: False, 1: True}  # PyTorch's number of a type of device -> whether it is a GPU


def memory(trace: Path, *, on_gpu: bool) -> Memory | None:
    """The tensors of a device over time; None if the trace tells nothing of them."""
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    starts = sorted(event["ts"] for event in events if event.get("name") == EPOCH and event.get("ph") == "X")
    told = [
        (event["ts"], event["args"]["Total Allocated"])
        for event in events
        if event.get("name") == "[memory]" and DEVICES.get(event["args"].get("Device Type")) is on_gpu
    ]
    if not told or not starts:
        return None
    points = thinned(sorted(told, key=lambda point: point[0]))
    return Memory(
        seconds=[(time - starts[0]) / 1e6 for time, _ in points],
        allocated_bytes=[size for _, size in points],
        epochs_s=[(start - starts[0]) / 1e6 for start in starts],
        peak_bytes=max(size for _, size in points),
    )


def thinned(points: list[tuple[float, int]], limit: int = POINTS) -> list[tuple[float, int]]:
    """At most `limit` points: of every stretch its last one, with the highest size in it."""
    if len(points) <= limit:
        return points
    ends = [round(place * len(points) / limit) for place in range(limit + 1)]
    stretches = (points[begin:end] for begin, end in pairwise(ends))
    return [(stretch[-1][0], max(size for _, size in stretch)) for stretch in stretches]


def save(trace: Path, path: Path) -> None:
    """Copy a trace, compressed where its name ends in `.gz`.

    Raises:
        GnnbenchError: it cannot be written.
    """
    content = trace.read_bytes()
    files.save_bytes(gzip.compress(content) if path.suffix == ".gz" else content, path)
