"""The findings of `gnnbench doctor` as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gnnbench import units
from gnnbench.report.run import threads
from gnnbench.report.tables import Cell, Table


def table(findings: dict[str, Any]) -> Table:
    """One line per fact; unavailable backends with what is missing and how to get it."""
    return Table(("", ""), [[Cell(name), Cell(value)] for name, value in _facts(findings)], prose=(0, 1))


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
