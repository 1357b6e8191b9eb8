"""Findings of what is installed, what can run here, and how to get the rest. It only looks and changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import psutil

from gnnbench import backends, datasets, units
from gnnbench.backends import isplib
from gnnbench.errors import BackendUnavailable
from gnnbench.kinds.run import threads
from gnnbench.measure import environment
from gnnbench.report.tables import Table, facts
from gnnbench.tuning import store

COMPILERS = ("cc", "gcc", "clang")


def examine(where: datasets.Roots) -> dict[str, Any]:
    """Everything that decides what runs here, ready for JSON.

    Keys: `environment` (see `measure.environment.describe`), `backends` (name -> `available`, `reasons`, each with
    its remedy, and a `remark`), `kernels` (see `gnnbench.backends.isplib.report`), `compiler`, `tuned` (graphs and
    the numbers of their choices, and files of other machines, versions or numbers of threads), `data` (`root`,
    `cache`, whether they exist and can be written, specs `on_disk`) and `available_memory_bytes`.
    """
    try:
        kernels = isplib.report()
    except BackendUnavailable as error:  # GNNBENCH_ISA asks for more than there is
        kernels = {"built": "yes", "reason": str(error)}
    tuned = list(store.known(where.cache))
    others = len(list(store.folder(where.cache).rglob("*.json"))) - len(tuned)
    cached = [path.stat().st_size for path in where.cache.rglob("*") if path.is_file()]
    return {
        "environment": environment.describe(),
        "backends": {name: _backend(name) for name in backends.names()},
        "kernels": kernels,
        "compiler": next(filter(None, map(shutil.which, COMPILERS)), None),
        "tuned": {"graphs": {each.graph: len(each.choices) for each in tuned}, "other_files": others},
        "data": {
            "root": str(where.raw),
            "root_exists": where.raw.is_dir(),
            "root_writable": os.access(where.raw, os.W_OK),
            "cache": str(where.cache),
            "cache_bytes": sum(cached),
            "on_disk": [offer.spec for offer in datasets.listing(where) if offer.on_disk],
        },
        "available_memory_bytes": psutil.virtual_memory().available,
    }


def _backend(name: str) -> dict[str, Any]:
    try:
        kind = backends.backend_type(name)
        reasons, remark = kind.unavailable(), kind.remark
    except BackendUnavailable as error:
        reasons, remark = [str(error)], ""
    return {"available": not reasons, "reasons": reasons, "remark": remark}


def table(findings: dict[str, Any]) -> Table:
    """One line per fact; unavailable backends with what is missing and how to get it."""
    return facts(_facts(findings))


def _facts(findings: dict[str, Any]) -> Iterator[tuple[str, str]]:
    environment, data = findings["environment"], findings["data"]
    cpu, variables = environment["cpu"], environment["threads"]["variables"]
    packages = [f"{name} {version}" for name, version in environment["packages"].items() if version]
    yield "versions", ", ".join([f"Python {environment['python']}", *packages])
    yield "processor", f"{cpu['model'] or cpu['architecture']}, {', '.join(cpu['isa'] or [])}"
    settings = [f"{name}={value}" for name, value in variables.items()]
    openmp = [f"OpenMP runtime {name}" for name in environment["threads"]["openmp"] or []]
    yield "threads", ", ".join([threads(environment), *settings, *openmp])
    total = f" of {units.size(environment['memory_bytes'])}" if environment["memory_bytes"] else ""
    yield "free memory", f"{units.size(findings['available_memory_bytes'])}{total}"
    yield "GPU", ", ".join(gpu["model"] for gpu in environment["gpus"]) or "none"
    yield "compiler", findings["compiler"] or "none; install one such as gcc, then run `pip install -e .`"
    kernels = findings["kernels"]
    yield "kernels", f"built, running {kernels['isa']}" if "isa" in kernels else kernels["reason"]
    graphs = [
        f"{graph} ({units.counted(count, 'choice')})" for graph, count in findings["tuned"]["graphs"].items()
    ]
    others = findings["tuned"]["other_files"]
    unused = f"; {units.counted(others, 'file')} of other machines, versions or numbers of threads" * (others > 0)
    yield "tuned graphs", (", ".join(graphs) or "none") + unused
    for name, backend in findings["backends"].items():
        state = "available" if backend["available"] else "\n".join(backend["reasons"])
        yield f"backend {name}", "; ".join(filter(None, (state, backend["remark"])))
    state = "" if data["root_exists"] else ", which does not exist"
    yield "data root", f"{data['root']}{state}; on disk: {', '.join(data['on_disk']) or 'nothing'}"
    yield "cache", f"{data['cache']}, {units.size(data['cache_bytes'])}"
