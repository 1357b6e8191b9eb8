"""The ceilings of this machine: streaming memory, gathering cache lines from the L2 cache, dense products."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from gnnbench.backends import isplib
from gnnbench.backends.isplib import ceiling
from gnnbench.backends.isplib.choices import L2_BYTES
from gnnbench.benchmarks.records import Ceilings
from gnnbench.errors import GnnbenchError
from gnnbench.measure import clock, environment
from gnnbench.results import files

STREAM_BYTES = 1 << 28  # of each array; far more than a core's share of any cache
COPY_BYTES = 1 << 31  # the same on a GPU
LINES = 1 << 20  # gathered by each thread at once
GEMM = 2048, 2048, 2048  # rows, inputs and outputs of a product that is bound by arithmetic
TALL = 8192, 256, 256  # one whose weight stays in the cache
LEAST_S = 0.3  # of repeats of one measurement, for processors that take a while to reach their speed


def find(cache: Path) -> Ceilings | None:
    """Measure for about three seconds; the highest that this machine ever reached with so many threads counts.

    What else runs can only lower a figure, so that the file in `cache` comes closer to the truth with every run.
    None where the kernels are not built.
    """
    if isplib.MISSING or ceiling.native is None:
        return None
    ceilings = measure()
    machine = json.dumps([environment.cpu(), torch.get_num_threads(), isplib.ISA[isplib.isa_level()]])
    path = cache / "ceilings" / f"{hashlib.sha256(machine.encode()).hexdigest()[:16]}.json"
    with suppress(OSError, ValueError):  # not there yet, or not ours
        known = Ceilings.model_validate_json(path.read_bytes())
        ceilings = Ceilings(
            **{name: max(value, getattr(known, name) or 0.0) for name, value in ceilings.model_dump().items()}
        )
    with suppress(GnnbenchError):  # a cache that cannot be written
        files.save_json(ceilings, path)
    return ceilings


def measure() -> Ceilings:
    """The ceilings as of now, each the best of many repeats."""
    a, b, c = torch.zeros(3, STREAM_BYTES // 4)
    streams = ((lambda: b.sum(), 1), (lambda: a.copy_(b), 2), (lambda: torch.add(b, c, alpha=2.0, out=a), 3))
    stream = max(arrays * a.nbytes / _best(call) for call, arrays in streams)
    threads = torch.get_num_threads()
    table = torch.ones(max(1, L2_BYTES // 2 // 64), ceiling.LINE_FLOATS)
    line = torch.randint(len(table), (threads, LINES), dtype=torch.int32)
    gather = line.numel() * 64 / _best(lambda: ceiling.gather(table, line))
    return Ceilings(stream_bytes_per_s=stream, gather_bytes_per_s=gather, flop_per_s=_products())


def _products() -> float:
    """The most that PyTorch's products and ours do."""
    kernels, best = isplib.IsplibKernels(), 0.0
    for rows, ins, outs in (GEMM, TALL):
        x, weight = torch.ones(rows, ins), torch.ones(outs, ins)
        for call in (lambda: x @ weight.t(), lambda: kernels.linear(x, weight, None)):  # noqa: B023
            best = max(best, 2 * rows * ins * outs / _best(call))
    return best


def copying(device: torch.device) -> Ceilings:
    """That of a GPU: what a copy reads and writes, of arrays much larger than its cache."""
    size = COPY_BYTES if device.type == "cuda" else STREAM_BYTES
    source, target = torch.zeros(2, size // 4, device=device)
    return Ceilings(
        stream_bytes_per_s=2 * source.nbytes / _best(lambda: target.copy_(source), clock.instants(device))
    )


def _best(call: Callable[[], object], now: Callable[[], Any] = clock.cpu) -> float:
    """Fewest seconds that one call took; the first one is not timed."""
    call()
    times: list[float] = []
    while sum(times) < LEAST_S:
        start = now()
        call()
        times.append(now() - start)
    return min(times)
