"""Findings of what is installed, what can run here, and how to get the rest. It only looks and changes nothing."""

from __future__ import annotations

import os
import shutil
from typing import Any

import psutil

from gnnbench import backends, datasets
from gnnbench.backends import isplib
from gnnbench.errors import BackendUnavailable
from gnnbench.measure import environment
from gnnbench.tuning import store

COMPILERS = ("cc", "gcc", "clang")


def examine(where: datasets.Roots) -> dict[str, Any]:
    """Everything that decides what runs here, ready for JSON.

    Keys: `environment` (see `measure.environment.describe`), `backends` (name -> `available`, `reasons`, each with
    its remedy, and a `remark`), `kernels` (see `gnnbench.backends.isplib.report`), `compiler`, `tuned` (graphs and
    the numbers of their choices, and files of other machines, versions or numbers of threads), `data` (`root`,
    `cache`, whether they exist and can be written, specs `on_disk`) and `available_memory_bytes`.
    """
    return {
        "environment": environment.describe(),
        "backends": {name: _backend(name) for name in backends.names()},
        "kernels": _kernels(),
        "compiler": next(filter(None, map(shutil.which, COMPILERS)), None),
        "tuned": _tuned(where),
        "data": _data(where),
        "available_memory_bytes": psutil.virtual_memory().available,
    }


def _kernels() -> dict[str, Any]:
    try:
        return isplib.report()
    except BackendUnavailable as error:  # GNNBENCH_ISA asks for more than there is
        return {"built": "yes", "reason": str(error)}


def _tuned(where: datasets.Roots) -> dict[str, Any]:
    known = list(store.known(where.cache))
    files = len(list(store.folder(where.cache).rglob("*.json")))
    return {"graphs": {tuned.graph: len(tuned.choices) for tuned in known}, "other_files": files - len(known)}


def _backend(name: str) -> dict[str, Any]:
    try:
        kind = backends.backend_type(name)
        reasons, remark = kind.unavailable(), kind.remark
    except BackendUnavailable as error:
        reasons, remark = [str(error)], ""
    return {"available": not reasons, "reasons": reasons, "remark": remark}


def _data(where: datasets.Roots) -> dict[str, Any]:
    cached = [path.stat().st_size for path in where.cache.rglob("*") if path.is_file()]
    return {
        "root": str(where.raw),
        "root_exists": where.raw.is_dir(),
        "root_writable": os.access(where.raw, os.W_OK),
        "cache": str(where.cache),
        "cache_bytes": sum(cached),
        "on_disk": [offer.spec for offer in datasets.listing(where) if offer.on_disk],
    }
