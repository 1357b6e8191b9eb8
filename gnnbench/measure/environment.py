"""Facts that a measurement depends on beside its configuration: machine, libraries, threads, revision."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import torch

import gnnbench
from gnnbench import units
from gnnbench.errors import ConfigError
from gnnbench.measure import SPIN_VARIABLES, memory

PACKAGES = ("torch", "torch_geometric", "numpy", "scipy", "ogb", "torch_sparse", "pyg_lib", "triton")
ISA_FLAGS = ("sse4_2", "avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "asimddp", "bf16")
MOST_THREADS = 16  # for each core, as every thread has a stack of its own
THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"),
    *SPIN_VARIABLES,
)
OPENMP_LIBRARY = re.compile(r"lib(?:gomp|iomp5?|omp)(?:[-.][^/]*)?\.(?:so|dylib)[^/]*$")


def use_threads(count: int) -> None:
    """Use `count` threads in all kernels, or PyTorch's default where it is 0.

    Raises:
        ConfigError: they are more than this machine can start within a usual limit of memory.
    """
    if not count:
        return
    cores = psutil.cpu_count() or 1
    if count > (most := cores * MOST_THREADS):
        raise ConfigError(
            f"threads: {count} are too many for this machine, which has {units.counted(cores, 'core')}; "
            f"give at most {most}"
        )
    torch.set_num_threads(count)


def describe() -> dict[str, Any]:
    """The environment of this process, ready for JSON; an unknown fact is None, never an error.

    Keys: `cpu` (model, cores, caches in bytes of one core's instance, instruction sets), `memory_bytes`,
    `threads` (see there), `gpus`, `cuda`, `os`, `python`,
    `packages`, `git`, `load_average` (1, 5 and 15 minutes). Names of host and user are left out.
    """
    return {
        "cpu": cpu(),
        "memory_bytes": _try(memory.total_bytes),
        "threads": threads(),
        "gpus": gpus(),
        "cuda": {"version": torch.version.cuda, "driver": _try(_driver)},
        "os": _try(platform.platform),
        "python": platform.python_version(),
        "packages": packages(),
        "git": _try(_git),
        "load_average": _try(lambda: list(psutil.getloadavg())),
    }


def packages() -> dict[str, str | None]:
    """Versions of this package and of the libraries that a run may use."""
    return {"gnnbench": gnnbench.__version__, **{name: _try(partial(version, name)) for name in PACKAGES}}


def cpu() -> dict[str, Any]:
    """The processor: what tells one machine from another."""
    return {
        "model": _try(lambda: _cpu_field("model name", "Model", "cpu model") or platform.processor() or None),
        "architecture": platform.machine(),
        "physical_cores": _try(lambda: psutil.cpu_count(logical=False)),
        "logical_cores": _try(psutil.cpu_count),
        "usable_cores": _try(usable_cores),
        **isa(),
        "cache_bytes": _try(_caches),
    }


def gpus() -> list[dict[str, Any]]:
    """Every GPU: model, memory in bytes, compute capability."""
    found = []
    with suppress(Exception):
        for number in range(torch.cuda.device_count()):
            card = torch.cuda.get_device_properties(number)
            capability = f"{card.major}.{card.minor}"
            found.append({"model": card.name, "memory_bytes": card.total_memory, "capability": capability})
    return found


def isa() -> dict[str, Any]:
    """Instruction sets of the processor, and the one that torch's own kernels use."""
    return {"isa": _try(_isa), "torch_isa": _try(torch.backends.cpu.get_cpu_capability)}


def threads() -> dict[str, Any]:
    """PyTorch's number of threads, the variables that steer them, and the OpenMP runtimes loaded by now."""
    return {
        "torch": torch.get_num_threads(),
        "variables": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "openmp": _try(openmp_runtimes),
    }


def usable_cores() -> int:
    """Logical cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def openmp_runtimes() -> list[str] | None:
    """File names of the OpenMP runtimes loaded into this process; None where that cannot be seen.

    Without the one of scikit-learn, which OGB loads, and which has threads in none of what a run calls.
    """
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    paths = {line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if line.count("/")}
    return sorted(
        {Path(path).name for path in paths if OPENMP_LIBRARY.search(path) and "scikit_learn.libs" not in path}
    )


def _try(read: Callable[[], Any]) -> Any:
    """The result of `read`, or None: a missing fact must not stop a run."""
    try:
        return read()
    except Exception:
        return None


def _command(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _cpu_field(*names: str) -> str | None:
    """The first of `names` in `/proc/cpuinfo`."""
    match = re.search(rf"^(?:{'|'.join(names)})\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1] if match else None


def _isa() -> list[str] | None:
    flags = (_cpu_field("flags", "Features") or "").split()
    return ["neon" if flag == "asimd" else flag for flag in ISA_FLAGS if flag in flags]


def _caches() -> dict[str, int] | None:
    """Bytes of the caches that core 0 uses: L1d, L2, L3."""
    result = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
        if kind != "Instruction":
            result[f"L{level}d" if kind == "Data" else f"L{level}"] = int(size.rstrip("K")) * 1024
    return result or None


def _driver() -> str | None:
    match = re.search(r"Module\s+(?:for \S+\s+)?(\d[\d.]+)", Path("/proc/driver/nvidia/version").read_text())
    return match[1] if match else None


def _git() -> dict[str, Any] | None:
    """Revision of the checkout this package is imported from; None for an installed package."""
    root = Path(gnnbench.__file__).resolve().parent.parent
    if Path(_command("git", "-C", str(root), "rev-parse", "--show-toplevel")).resolve() != root:
        return None
    changes = _command("git", "-C", str(root), "status", "--porcelain", "--untracked-files=no")
    return {"revision": _command("git", "-C", str(root), "rev-parse", "HEAD"), "dirty": bool(changes)}
