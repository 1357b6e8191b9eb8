"""Which code runs: a hash that tells whether a verdict, or what was timed, is still of the code at hand."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

import gnnbench
from gnnbench.measure import environment

SUFFIXES = (".py", *EXTENSION_SUFFIXES)
SHOWN = ("cli", "doctor", "history", "kinds", "report", "units")
KERNELS = ("backends", "graph", "ops")
VARIABLES = ("GNNBENCH_ISA", "TRITON_INTERPRET")  # that choose between kernels


def digest(module: str = "") -> str:
    """Hash of all code that takes part in a run, as it lies on disk now; takes about 10 ms.

    That is what computes, checks or times in this package, with its compiled kernels; the versions of libraries;
    the instruction sets; and everything in the package of `module`, if a backend comes from another one.
    """
    return _hashed(lambda unit: unit not in SHOWN, module)


@functools.cache
def kernels() -> str:
    """Hash of the kernels alone, as they lay on disk when this process first asked."""
    return _hashed(lambda unit: unit in KERNELS, "")


def _hashed(wanted: Callable[[str], bool], module: str) -> str:
    content = hashlib.sha256()
    root = Path(gnnbench.__file__).parent
    files = [path for path in _files(root) if wanted(path.relative_to(root).parts[0].partition(".")[0])]
    for path in files + (_files_of(module) if module else []):
        content.update(f"{path.name} {path.stat().st_size}\n".encode())
        content.update(path.read_bytes())
    variables = [os.environ.get(name, "") for name in VARIABLES]
    content.update(json.dumps([environment.packages(), environment.isa(), variables]).encode())
    return content.hexdigest()[:16]


def _files_of(module: str) -> list[Path]:
    """The files of the package that a module is in, without importing it."""
    spec = find_spec(module.partition(".")[0])
    if spec is None:
        return []
    folders = spec.submodule_search_locations
    if folders is None:
        return [Path(spec.origin)] if spec.origin else []
    return [path for folder in folders for path in _files(Path(folder))]


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.name.endswith(SUFFIXES))
