"""Peak memory per epoch, memory at rest, the limit a run may not exceed, and freed memory that malloc keeps."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import torch

from gnnbench import units
from gnnbench.config import MeasureConfig
from gnnbench.errors import ConfigError, Ending, GnnbenchError, OutOfMemory

EXHAUSTED = (
    *("can't allocate memory", "cannot allocate memory", "not enough memory"),
    *("bad_alloc", "out of memory", "memoryerror", "storage size calculation overflowed"),
)
# Of mallopt(3).
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
LARGE, LARGEST = 1 << 20, 32 << 20  # bytes; the latter is the most that malloc does not map, whatever was freed
ROOM = 10  # peaks of an epoch: glibc may leave seven freed tensors of a size idle before it reuses one
CHOSEN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES", "LD_PRELOAD")


class Meter(ABC):
    """Reads the memory of this process or of one device, in bytes."""

    def resting(self) -> int:
        """Memory in use now, after giving back what is free, which an epoch could seem not to need."""
        gc.collect()
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # of glibc
            trim(0)
        self.reset()
        return self.peak()

    @abstractmethod
    def reset(self) -> None:
        """Start a new peak at the memory in use now."""

    @abstractmethod
    def peak(self) -> int:
        """Highest memory in use since the last reset."""


class HighWaterMark(Meter):
    """The Linux kernel's own record of a process's resident memory, which misses no short peak.

    Writing "5" to `clear_refs` sets `VmHWM` to the memory in use (`man 5 proc_pid_clear_refs`).
    """

    @staticmethod
    def available() -> bool:
        try:
            HighWaterMark().reset()
            return HighWaterMark().peak() > 0
        except OSError:
            return False

    def reset(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")

    def peak(self) -> int:
        return _status_bytes("VmHWM")


class Sampler(Meter):
    """Resident memory read every few milliseconds by a thread, for systems without a high-water mark."""

    interval_s = 0.005

    def __init__(self) -> None:
        self._process, self._peak = psutil.Process(), 0
        threading.Thread(target=self._watch, daemon=True).start()

    def reset(self) -> None:
        self._peak = 0
        self.peak()

    def peak(self) -> int:
        self._peak = max(self._peak, int(self._process.memory_info().rss))
        return self._peak

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(self.interval_s):
            self.peak()


class CudaPeak(Meter):
    """The memory that PyTorch's allocator handed out on one CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def resting(self) -> int:
        gc.collect()
        torch.cuda.empty_cache()
        return torch.cuda.memory_allocated(self._device)

    def reset(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated(self._device)


def meter(device: torch.device) -> Meter:
    """The most exact meter there is for `device` on this system."""
    if device.type == "cuda":
        return CudaPeak(device)
    return HighWaterMark() if HighWaterMark.available() else Sampler()


def total_bytes() -> int:
    """Memory of the machine, or of the control group (container, batch job) where that is less."""
    return min([int(psutil.virtual_memory().total), *_cgroup_limits()])


def limit_bytes(text: str, total: int | None = None) -> int:
    """A size such as "16GiB" or "90%" in bytes, at most `total` or else the machine's memory."""
    total = total or total_bytes()
    try:
        return min(units.size_bytes(text, total), total)
    except ValueError as error:
        raise ConfigError(f"--memory-limit: {error}") from None


def left() -> int:
    """Bytes that the limit in force leaves this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    limit = total_bytes() if soft == resource.RLIM_INFINITY else min(soft, total_bytes())
    return max(0, limit - _status_bytes("VmData"))


@contextmanager
def limited(text: str, device: torch.device) -> Iterator[None]:
    """Make allocations beyond a size such as "16GiB" or "90%" fail inside the block.

    On CUDA it is PyTorch's share of the device. On the CPU it is Linux's `RLIMIT_DATA`: private writable
    memory, which is what tensors are made of. `RLIMIT_AS` would also count libraries, memory-mapped
    datasets and address space that is reserved but never touched, tens of GiB of it once CUDA is loaded,
    so that a run would fail far below its limit.

    Raises:
        ConfigError: the limit is below what the process already uses.
        OutOfMemory: memory ran out inside the block.
    """
    on_cuda = device.type == "cuda"
    total = torch.cuda.get_device_properties(device).total_memory if on_cuda else total_bytes()
    limit = limit_bytes(text, total)
    with ExitStack() as ends:
        if on_cuda:
            torch.cuda.set_per_process_memory_fraction(limit / total, device)
            ends.callback(torch.cuda.set_per_process_memory_fraction, 1.0, device)
        else:
            if (used := _status_bytes("VmData")) > limit:
                raise ConfigError(
                    f"measure.memory_limit: {text} is less than the {units.size(used)} that Python and PyTorch "
                    "already use; raise it"
                )
            soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
            ceilings = [bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY]
            resource.setrlimit(resource.RLIMIT_DATA, (min([limit, *ceilings]), hard))
            ends.callback(resource.setrlimit, resource.RLIMIT_DATA, (soft, hard))
        try:
            yield
        except Exception as error:
            if not is_exhaustion(error):
                raise
            where = "the GPU" if on_cuda else "this process"
            raise OutOfMemory(
                f"the run needs more memory than the {units.size(limit)} that measure.memory_limit ({text}) "
                f"leaves {where}; raise it, or take a smaller graph or model"
            ) from None


def is_exhaustion(error: BaseException) -> bool:
    """Return whether an error says that memory ran out, in any of the ways that PyTorch and NumPy say it."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError | OSError) and says_exhausted(str(error))


def says_exhausted(text: str) -> bool:
    """Return whether a message or a line of a log is about memory that ran out."""
    return any(sign in text.lower() for sign in EXHAUSTED)


def ending(error: BaseException) -> tuple[Ending, str]:
    """Status and one line of text for work that ended with `error`."""
    status: Ending = getattr(error, "status", None) or ("oom" if is_exhaustion(error) else "failed")
    text = str(error) if isinstance(error, GnnbenchError) and str(error) else f"{type(error).__name__}: {error}"
    return status, text.partition("\n")[0]


def _status_bytes(name: str) -> int:
    """Read a size of this process, such as `VmData`, which `RLIMIT_DATA` counts; 0 where it is not told."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


def _cgroup_limits(
    groups_file: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")
) -> Iterator[int]:
    """Memory limits of this process's control group and its ancestors, versions 1 and 2."""
    groups = groups_file.read_text().splitlines() if groups_file.exists() else []
    for _, controllers, path in (line.split(":", 2) for line in groups):
        if controllers and "memory" not in controllers.split(","):
            continue
        top, name = ("", "memory.max") if not controllers else ("memory", "memory.limit_in_bytes")
        group = mount / top / path.lstrip("/")
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):  # absent, or "max"
                yield int((folder / name).read_text())


def room_to_keep(measure: MeasureConfig, peak_bytes: int) -> bool:
    """Return whether malloc is to keep what is freed, and may without reaching the limit of memory."""
    return measure.allocator == "warm" and ROOM * peak_bytes <= limit_bytes(measure.memory_limit)


def keep_freed() -> bool:
    """Let glibc's malloc keep what is freed from now on.

    Returns:
        Whether it does: not under another allocator, nor where the user has chosen.

    By default it maps every large tensor anew, and each page of it is faulted in and zeroed again, which can take
    longer than the work on it. In return memory may lie idle between tensors of different sizes.
    """
    return _set_options({MMAP_MAX: 0, TRIM_THRESHOLD: 2**31 - 1})


@contextmanager
def freed_at_once() -> Iterator[None]:
    """Let glibc's malloc give back tensors of `LARGE` bytes as they are freed, so that a peak is what is in use.

    By default it keeps some between tensors of other sizes, more in one call than in the next.
    """
    _set_options({MMAP_THRESHOLD: LARGE})
    try:
        yield
    finally:
        # Where malloc's own adjustment, which ends with the first option set, would have gone.
        _set_options({MMAP_THRESHOLD: LARGEST, TRIM_THRESHOLD: 2 * LARGEST})


def _set_options(options: dict[int, int]) -> bool:
    """Set options of mallopt(3), unless the user has chosen, and return whether it took them."""
    if any(os.environ.get(name) for name in CHOSEN):
        return False
    try:
        libc = ctypes.CDLL(None)
        return all(libc.mallopt(option, value) for option, value in options.items())
    except (OSError, TypeError, AttributeError):  # another C library
        return False
