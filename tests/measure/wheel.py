"""The source distribution and the wheel built from it, as a machine without a compiler installs them.

    python tests/measure/wheel.py [--dist FOLDER] [--python PYTHON] [--beside FOLDER]

It needs `build`, `auditwheel` and `abi3audit`. The wheel must fit manylinux_2_28, be under 3 MB, use no more
of Python than its limited API, hold every configuration, and in a new virtual environment where `CC=false` run a
comparison and the two lines of the drop-in. PYTHON makes that environment; with --beside, the packages of that
folder serve for the dependencies, which are installed otherwise.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_BYTES = 3_000_000
NEWEST_GLIBC = 28  # of manylinux_2_28
TWO_LINES = """
import gnnbench
gnnbench.patch_pyg()
import torch
from torch_geometric.nn import GCN
x, edge_index = torch.randn(20000, 32), torch.randint(20000, (2, 400000))
model = GCN(32, 64, num_layers=2, out_channels=8)
model(x, edge_index).sum().backward()
print(gnnbench.__file__, gnnbench.patch_status())
"""


def run(*command: str | Path, **options: object) -> str:
    """Return what a command printed; an error that shows it where the command fails."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return str(done.stdout + done.stderr)


def audit(wheel: Path) -> None:
    """Refuse a wheel that is large, or links or reads more than it may, or has no configurations."""
    shown = " ".join(run(sys.executable, "-m", "auditwheel", "show", wheel).split())
    tag = re.search(r'platform tag: "manylinux_2_(\d+)_', shown)
    assert tag, f"the wheel fits no manylinux: {shown}"
    assert int(tag[1]) <= NEWEST_GLIBC, shown
    assert wheel.stat().st_size < MOST_BYTES, f"{wheel.name} has {wheel.stat().st_size} bytes"
    assert "0 ABI version mismatches and 0 ABI violations" in run(sys.executable, "-m", "abi3audit", "-v", wheel)
    names = zipfile.ZipFile(wheel).namelist()
    missing = {f"gnnbench/configs/{path.name}" for path in (ROOT / "configs").glob("*.yaml")} - set(names)
    assert not missing, f"the wheel lacks {missing}"
    modules = sum(name.endswith(".abi3.so") for name in names)
    assert modules == len([*(ROOT / "cython_kernels").glob("*.pyx")]), f"the wheel has {modules} compiled modules"
    print(f"{wheel.name}: manylinux_2_{tag[1]}, {wheel.stat().st_size:,} bytes, {modules} modules", flush=True)


def install(wheel: Path, python: str, beside: str | None, folder: Path) -> None:
    """Install the wheel where nothing can be compiled, and run what the README begins with."""
    run(python, "-m", "venv", folder)
    packages = Path(run(folder / "bin/python", "-c", "import site; print(site.getsitepackages()[0])").strip())
    if beside:
        (packages / "beside.pth").write_text(beside)
    environment = {**os.environ, "CC": "false", "CXX": "false"}
    options = ["--no-deps"] if beside else ["-c", ROOT / "constraints.txt"]
    run(folder / "bin/pip", "install", "--only-binary", ":all:", *options, wheel, env=environment)
    where = {"cwd": folder, "env": environment}
    compare = ["compare", "--dataset", "synthetic:cora:0.2", "--rounds", "1", "--epochs", "4"]
    shown = run(folder / "bin/gnnbench", *compare, "--backends", "pyg,isplib", **where)
    assert "Parity: green" in shown, shown
    shown = run(folder / "bin/python", "-c", TWO_LINES, **where)
    assert str(packages / "gnnbench") in shown, shown
    assert "accelerated: GCNConv" in shown, shown
    print(shown, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dist", type=Path, help="of a source distribution and a wheel, built unless there")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--beside", help="a folder of installed packages, torch among them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dist = options.dist or folder / "dist"
        if not [*dist.glob("*.whl")]:
            run("git", "clone", "--quiet", ROOT, folder / "clone")  # what is committed, and nothing that was built
            run(sys.executable, "-m", "build", "--outdir", dist, folder / "clone")
        (wheel,) = dist.glob("*.whl")
        audit(wheel)
        install(wheel, options.python, options.beside, folder / "environment")


if __name__ == "__main__":
    main()
