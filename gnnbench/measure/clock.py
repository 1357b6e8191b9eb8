"""The only module that reads a clock: seconds of every phase, peak memory of every epoch, warm-up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psutil
import torch

from gnnbench.measure import memory
from gnnbench.results.schema import Sample

T = TypeVar("T")
PHASES = ("load", "forward", "backward", "exchange", "optimizer")
INNER = ("encoder", "decoder", "loss")  # of the forward phase, whose time includes theirs
PAUSED = "paused"


cpu: Callable[[], float] = time.perf_counter  # monotonic seconds


def since_start() -> float:
    """Seconds since this process began, its imports among them."""
    return time.time() - psutil.Process().create_time()


def of(device: torch.device) -> Callable[[], float]:
    """Monotonic seconds, read after all work queued on `device` is done."""

    def synchronised() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronised if device.type == "cuda" else cpu


@dataclass(frozen=True)
class Instant:
    """A place in the work of a CUDA stream; `later - earlier` waits for it, and is in seconds."""

    event: torch.cuda.Event

    def __sub__(self, earlier: Instant) -> float:
        self.event.synchronize()
        return earlier.event.elapsed_time(self.event) / 1e3


def instants(device: torch.device) -> Callable[[], Any]:
    """The finest clock of `device`: differences of readings are seconds, on CUDA between events of the stream."""

    def now() -> Instant:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return Instant(event)

    return now if device.type == "cuda" else cpu


@dataclass
class Recorder:
    """Turns epochs into samples.

    Use: `begin` before the first epoch of a repeat, then around each epoch `with recorder.epoch()`,
    with `recorder.phase(name)` around its parts, then `sample`. The phase `PAUSED` is left out of the epoch.
    Nothing but the epoch itself lies between its two clock readings: memory is read outside of them.
    """

    warmup: int
    now: Callable[[], float]
    meter: memory.Meter
    joules: Callable[[], float] | None = None
    cold_epochs: int = 0  # how many of the next ones are warm-up
    keeps_freed: bool = False  # malloc has begun to keep what is freed
    _seconds: dict[str, float | None] = field(default_factory=dict)
    _energy_j: float | None = None
    _peak_bytes: int = 0
    _inner_s: float = 0.0

    def begin(self, epochs: int, odd: int = 0) -> None:
        """Call the first epochs of the `epochs` to come warm-up, `odd` at least, but never all of them."""
        self.cold_epochs = min(max(self.warmup, odd), epochs - 1)

    @contextmanager
    def epoch(self) -> Iterator[None]:
        """Time one epoch and take its peak memory."""
        self._seconds = dict.fromkeys(PHASES + INNER)
        self._inner_s = 0.0
        self.meter.reset()
        joules = self.joules() if self.joules else 0.0
        start = self.now()
        yield
        elapsed_s = self.now() - start
        self._seconds["epoch"] = elapsed_s - (self._seconds.pop(PAUSED, None) or 0.0)
        self._energy_j = self.joules() - joules if self.joules else None
        self._peak_bytes = self.meter.peak()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of this block, but for phases within it that are not its parts, to one of the epoch."""
        before, self._inner_s = self._inner_s, 0.0
        start = self.now()
        yield
        elapsed_s = self.now() - start
        self._seconds[name] = (self._seconds.get(name) or 0.0) + elapsed_s - self._inner_s
        self._inner_s = before + (self._inner_s if name in INNER else elapsed_s)

    def sample(
        self, repeat: int, epoch: int, loss: float, held_bytes: int = 0, loading_s: float | None = None
    ) -> Sample:
        """The epoch that was just recorded; `held_bytes` of its memory escaped the meter."""
        warmup = self.cold_epochs > 0
        self.cold_epochs -= warmup
        return Sample(
            repeat=repeat,
            epoch=epoch,
            warmup=warmup,
            keeps_freed=self.keeps_freed,
            peak_memory_bytes=self._peak_bytes + held_bytes,
            energy_j=self._energy_j,
            loss=loss,
            loading_s=loading_s,
            **{f"{name}_s": seconds for name, seconds in self._seconds.items()},
        )

    def time(self, work: Callable[[], T]) -> tuple[T, float]:
        """The result of `work`, and the seconds it took."""
        start = self.now()
        done = work()
        return done, self.now() - start


class OtherPrograms:
    """The number of processor cores that everything but this process kept busy since this object was made."""

    def __init__(self) -> None:
        self._own = psutil.Process()
        self.busy_cores()

    def busy_cores(self) -> float:
        """Mean over the time since the start, or the last call."""
        machine = psutil.cpu_percent() * (psutil.cpu_count() or 1)
        return max(0.0, machine - self._own.cpu_percent()) / 100
