"""Memory meters, limits, and the ways in which memory runs out."""

from __future__ import annotations

import gc
import subprocess
import sys
from mmap import PAGESIZE, mmap
from pathlib import Path

import pytest
import torch

from gnnbench.errors import ConfigError, OutOfMemory
from gnnbench.measure import memory

CPU = torch.device("cpu")
MIB = 1024**2
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
high_water = pytest.mark.skipif(
    not memory.HighWaterMark.available(), reason="no resettable high-water mark on this system"
)


@high_water
def test_the_high_water_mark_sees_a_peak_that_is_gone_and_forgets_it_on_reset() -> None:
    meter = memory.HighWaterMark()
    resting = meter.resting()
    meter.reset()
    with mmap(-1, 200 * MIB) as block:  # malloc may take, and keep, what other tests have freed
        block[::PAGESIZE] = bytes(len(block) // PAGESIZE)
    assert 195 * MIB < meter.peak() - resting < 230 * MIB
    meter.reset()
    assert meter.peak() - resting < 30 * MIB


def test_the_sampler_sees_a_peak_while_nobody_asks() -> None:
    meter = memory.Sampler()
    resting = meter.resting()
    meter.reset()
    block = torch.ones(200 * MIB, dtype=torch.uint8)
    for _ in range(10_000):
        if meter._peak - resting > 150 * MIB:
            break
        torch.ones(MIB).sum()
    del block
    gc.collect()
    assert meter.peak() - resting > 150 * MIB


def test_systems_without_a_high_water_mark_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, text: str) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refused)
    assert isinstance(memory.meter(CPU), memory.Sampler)


def test_a_gpu_is_measured_by_its_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name, value in {
        "reset_peak_memory_stats": None,
        "max_memory_allocated": 7,
        "memory_allocated": 5,
        "empty_cache": None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, name=name, value=value: calls.append(name) or value)
    meter = memory.meter(torch.device("cuda", 0))
    assert meter.resting() == 5
    meter.reset()
    assert meter.peak() == 7
    assert calls == ["empty_cache", "memory_allocated", "reset_peak_memory_stats", "max_memory_allocated"]


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("0::/job/step\n", {"job/memory.max": "5000", "job/step/memory.max": "max"}, [5000]),
        ("4:memory:/box\n1:cpu:/\n", {"memory/box/memory.limit_in_bytes": "7000"}, [7000]),
        ("0::/\n", {"memory.max": "9000"}, [9000]),
        ("0::/\n", {}, []),
    ],
    ids=["version 2, ancestor", "version 1", "container", "none"],
)
def test_limits_of_control_groups(tmp_path: Path, group: str, files: dict[str, str], expected: list[int]) -> None:
    mount, groups_file = tmp_path / "mount", tmp_path / "groups"
    groups_file.write_text(group)
    for name, text in files.items():
        (mount / name).parent.mkdir(parents=True, exist_ok=True)
        (mount / name).write_text(text + "\n")
    assert list(memory._cgroup_limits(groups_file, mount)) == expected


def test_no_control_groups_no_limits(tmp_path: Path) -> None:
    assert list(memory._cgroup_limits(tmp_path / "absent")) == []


def test_a_control_group_lowers_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_cgroup_limits", lambda: iter([123 * MIB]))
    assert memory.total_bytes() == 123 * MIB


LIMITED = """
import torch
from gnnbench.measure import memory
from gnnbench.errors import OutOfMemory
cpu = torch.device("cpu")
try:
    with memory.limited("1GiB", cpu):
        small = torch.ones(200 * 1024**2, dtype=torch.uint8)
        print("small", small.numel())
        torch.empty(2 * 1024**3, dtype=torch.uint8)
        print("large")
except OutOfMemory as error:
    print(error)
print("after", torch.empty(2 * 1024**3, dtype=torch.uint8).numel())
"""


@linux
def test_a_run_beyond_the_limit_fails_cleanly_and_the_limit_ends_with_it() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True)
    small, reason, after = done.stdout.splitlines()
    assert small == f"small {200 * MIB}"
    assert reason.startswith("the run needs more memory than the 1.00 GiB that measure.memory_limit (1GiB)")
    assert after == f"after {2 * 1024**3}"


@linux
def test_a_memory_mapped_file_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "col.bin"
    with path.open("wb") as file:
        file.truncate(3 * 1024**3)  # sparse: takes no space
    script = f"""
import numpy, torch
from gnnbench.measure import memory
with memory.limited("1GiB", torch.device("cpu")):
    print(numpy.memmap({str(path)!r}, mode="r", dtype="uint8").size)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(3 * 1024**3)


@linux
def test_a_limit_below_what_is_already_used_is_bad_input() -> None:
    with pytest.raises(ConfigError, match=r"measure.memory_limit: 1MiB is less than"), memory.limited("1MiB", CPU):
        pass


def test_other_errors_pass_through_the_limit() -> None:
    with pytest.raises(RuntimeError, match="shapes"), memory.limited("90%", CPU):
        raise RuntimeError("shapes do not match")


def test_a_gpu_is_limited_by_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []

    class Card:
        total_memory = 80 * 1024**3

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Card)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, device: shares.append(share))
    with pytest.raises(OutOfMemory, match="leaves the GPU"), memory.limited("20GiB", torch.device("cuda", 0)):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
    assert shares == [0.25, 1.0]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("Storage size calculation overflowed with sizes=[4611686018427387903, 602]"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_counts_as_exhaustion(error: BaseException, expected: bool) -> None:
    assert memory.is_exhaustion(error) is expected
