"""The Triton kernels compile for GPUs that are not there, without spills and with loads of 16 bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.gpu import needs_triton

ROOT = Path(__file__).parents[2]
STACK_BYTES = 64  # of a thread, at most
GATHERING = {"sum_kernel", "extremum_kernel", "extremum_backward_kernel", "sddmm_kernel", "ties_kernel"}
FUSED = {"attention_kernel", "edge_kernel", "gradient_kernel", "delta_kernel", "att_kernel"}
pytestmark = [needs_triton, pytest.mark.slow]


def compiled(tmp_path: Path, target: str, dtype: str) -> list[dict[str, Any]]:
    unwanted = ("TRITON_INTERPRET", "COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START")
    environment = {key: value for key, value in os.environ.items() if key not in unwanted}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    program = [sys.executable, str(ROOT / "tests" / "support" / "aot.py"), target, dtype]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("arch", "dtype"), [("90", "float32"), ("80", "bfloat16")])
def test_for_nvidia(arch: str, dtype: str, tmp_path: Path) -> None:
    found = compiled(tmp_path, arch, dtype)
    left_out = set() if dtype == "float32" else {"edge_kernel"}
    assert {each["kernel"] for each in found} >= (GATHERING | FUSED) - left_out
    for each in found:
        assert each["stack_bytes"] <= STACK_BYTES, each
        if "'col': None" in each["how"]:
            continue  # of slices, which are few and in order
        assert each["kernel"] not in GATHERING or 16 * each["wide_loads"] >= each["tile_bytes"], each
        assert each["kernel"] not in FUSED or each["wide_loads"], each


def test_for_amd(tmp_path: Path) -> None:
    assert {each["kernel"] for each in compiled(tmp_path, "gfx942", "float32")} >= GATHERING | FUSED
