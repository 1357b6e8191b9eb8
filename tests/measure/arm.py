"""The kernels on ARM: their tests and random models, run under qemu-user on modules compiled for aarch64.

    python tests/measure/arm.py FOLDER [--torch VERSION] [--models N]

It needs root, Debian's debootstrap, gcc-aarch64-linux-gnu and qemu-user, and an environment of Python 3.11 where
gnnbench is built, whose packages without compiled code it runs. FOLDER keeps what is for ARM, 2 GB, for the
next time. Forward and every gradient are held against plain PyTorch and float64, at the level of NEON.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPILED = ["numpy", "scipy", "pandas", "scikit-learn", "pydantic-core", "psutil", "hypothesis", "markupsafe"]
COMPILED += ["xxhash", "aiohttp", "multidict", "yarl", "frozenlist", "propcache"]  # which PyG imports
FUZZ = """
from tests.measure.fuzz_models import WAYS, Seed, fuzz
failures, counts = fuzz([Seed(number, WAYS[number % len(WAYS)]) for number in range({models})])
for seed, problem in failures:
    print(seed, problem)
print("{models} random models,", len(failures), "differ;", dict(counts))
"""


def run(*command: str | Path, **options: object) -> None:
    subprocess.run([*map(str, command)], check=True, **options)  # type: ignore[call-overload]


def install(folder: Path, torch: str) -> None:
    """Unpack Python for ARM, and the packages with compiled code, of this environment's versions."""
    root = folder / "root"
    if not (root / "usr/bin/python3.11").exists():
        how = ["--arch=arm64", "--foreign", "--variant=minbase", "--include=python3,libstdc++6"]
        run("debootstrap", *how, "bookworm", root)
        for package in (root / "var/cache/apt/archives").glob("*.deb"):
            run("dpkg-deb", "-x", package, root)
    wanted = [f"torch=={torch}", *(f"{name}=={version(name)}" for name in COMPILED)]
    how = ["--no-deps", "--only-binary=:all:", "--python-version=3.11", f"--target={folder / 'packages'}"]
    how += [f"--platform=manylinux{tag}_aarch64" for tag in ("_2_28", "_2_17", "2014")]
    if not (folder / "packages").exists():
        run("pip", "install", "--quiet", *how, *wanted)


def compile_package(copy: Path) -> None:
    """Copy the package and its tests, with modules for ARM."""
    shutil.rmtree(copy, ignore_errors=True)
    for name in ("gnnbench", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    include = sysconfig.get_path("include")  # of this processor, whose sizes are those of every 64-bit Linux
    flags = ["-O3", "-g0", "-fPIC", "-fopenmp", "-DPy_LIMITED_API=0x030A0000", "-isystem", include, "-c"]
    for source in sorted((ROOT / "cython_kernels").glob("*.pyx")):
        module = copy / f"gnnbench/backends/isplib/_{source.stem}.abi3.so"
        run("aarch64-linux-gnu-gcc", *flags, source.with_suffix(".c"), "-o", copy / "kernel.o")
        run("aarch64-linux-gnu-gcc", "-shared", "-Wl,-z,now", copy / "kernel.o", "-o", module)  # OpenMP is torch's


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--torch", default="2.10.0", help="one whose wheel for ARM is without CUDA")
    parser.add_argument("--models", type=int, default=300)
    options = parser.parse_args()
    folder = options.folder.resolve()
    install(folder, options.torch)
    compile_package(folder / "copy")
    (listed,) = re.findall(r"^SANITIZED_TESTS.*addsuffix \.py,([^)]*)\)", (ROOT / "Makefile").read_text(), re.M)
    tests = [f"tests/{name}.py" for name in listed.split()]
    emulated = ["qemu-aarch64", "-L", folder / "root", folder / "root/usr/bin/python3.11"]
    packages = [entry for entry in sys.path if entry.endswith("site-packages")]
    path = os.pathsep.join(map(str, [folder / "copy", folder / "packages", *packages]))
    where = {"cwd": folder / "copy", "env": {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}}
    # Inputs of plain PyTorch need no emulation, and torch.compile would need a compiler there.
    run(*emulated, "-m", "pytest", "--verbosity=0", "-k", "not torch and not compiled", *tests, **where)
    run(*emulated, "-c", FUZZ.format(models=options.models), **where)


if __name__ == "__main__":
    main()
