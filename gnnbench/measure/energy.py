"""Energy by the counters of processors (RAPL) and of NVIDIA GPUs (NVML)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

POWERCAP = Path("/sys/class/powercap")
Joules = Callable[[], float]


def meter(device: torch.device) -> tuple[Joules | None, str]:
    """Return joules since some moment, of all processor packages or of the GPU, or None and why they are unknown.

    A package's counter covers its cores and caches, whoever uses them, and is updated about once a millisecond.

    Args:
        device: that trains: a GPU's energy leaves out the processor's.
    """
    return _of_gpu(device) if device.type == "cuda" else _of_processors()


def _of_processors() -> tuple[Joules | None, str]:
    packages = sorted(each for each in POWERCAP.glob("intel-rapl:*") if each.name.count(":") == 1)
    if not packages:
        return None, f"{POWERCAP} has no counter of a processor, as in most virtual machines"
    try:
        counters = [_counter(each) for each in packages]
    except (OSError, ValueError) as error:
        return None, f"{error}; let the system's administrator make energy_uj readable"
    return lambda: sum(joules() for joules in counters), ""


def _counter(package: Path) -> Joules:
    """A package's counter, which begins anew at `max_energy_range_uj`: at full load after some minutes."""
    file, total_uj = package / "energy_uj", 0
    last_uj = int(file.read_text())

    def joules() -> float:
        nonlocal last_uj, total_uj
        before, last_uj = last_uj, int(file.read_text())
        begun_anew = last_uj < before
        total_uj += last_uj - before + (int((package / "max_energy_range_uj").read_text()) if begun_anew else 0)
        return total_uj / 1e6

    return joules


def _of_gpu(device: torch.device) -> tuple[Joules | None, str]:
    try:
        import pynvml
    except ImportError:
        return None, "a GPU's energy needs the package nvidia-ml-py: pip install nvidia-ml-py"
    try:
        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except pynvml.NVMLError as error:
        return None, f"NVML: {error}"
    return lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3, ""
