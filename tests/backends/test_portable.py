"""The kernels compile without a warning for other processors and by other compilers, where those are at hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "cython_kernels"
COMPILERS = {
    "aarch64": ["aarch64-linux-gnu-gcc", "-c", "-O2"],
    "clang": ["clang", "-c"],
    "gcc": ["gcc", "-fsyntax-only"],
    "no instruction set but the baseline": ["gcc", "-fsyntax-only", "-DGNNBENCH_BASELINE_ONLY"],
}


@pytest.mark.parametrize("compiler", COMPILERS.values(), ids=COMPILERS.keys())
@pytest.mark.parametrize("module", sorted(path.stem for path in KERNELS.glob("*.pyx")))
def test_compiles_without_warnings(module: str, compiler: list[str]) -> None:
    source = KERNELS / f"{module}.c"
    if not shutil.which(compiler[0]):
        pytest.skip(f"{compiler[0]} is not installed")
    if not source.exists():
        pytest.skip(f"{source.name} was not generated; install with `pip install -e .`")
    include = sysconfig.get_path("include")  # of this processor, whose sizes are those of every 64-bit Linux
    flags = ["-o", os.devnull, "-Wall", "-Wextra", "-Werror", "-fopenmp", "-isystem", include]
    done = subprocess.run([*compiler, *flags, str(source)], capture_output=True, text=True)
    assert not done.returncode, done.stderr
