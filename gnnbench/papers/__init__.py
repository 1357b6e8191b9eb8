"""Papers reproduced: their claims as data, measured under their own protocol and under a corrected one.

A paper is a module of this package with
    `PAPER`: what all tables say about it;
    `CLAIMS`: every published number, what it was published on, and which measurements are compared with it;
    `cells(scale)`: the grid, one `Training`, `Ops` or `Tuning` per cell.

    _records     claims, measurements, and claims held against measurements
    _cells       cells of a grid, each in a fresh process, as `gnnbench.cells` runs it
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from gnnbench import backends, cells, registry
from gnnbench.benchmarks.contest import unknown
from gnnbench.cells import CellRecord
from gnnbench.datasets import Roots
from gnnbench.errors import ConfigError, GnnbenchError, did_you_mean
from gnnbench.measure import code, environment
from gnnbench.papers._cells import Cell, Ops, Training, Tuning, Work
from gnnbench.papers._records import SCALES, Claim, Measurement, Paper, Reproduction, Scale, finding
from gnnbench.results import files

__all__ = ["Cell", "Claim", "Ops", "Paper", "Reproduction", "Training", "Tuning"]


def names() -> list[str]:
    """Papers that can be reproduced."""
    return [name.replace("_", "-") for name in registry.names("papers")]


def reproduce(
    paper: str,
    scale: str,
    *,
    out: Path,
    roots: Roots,
    backend: str = "",
    dgl_python: str = "",
    memory_limit: str = "90%",
    force: bool = False,
    on_event: Callable[[Reproduction, str, str], None] = lambda *_: None,
    execute: cells.Execute | None = None,
) -> Reproduction:
    """Measure every cell of a paper's grid, and compare the paper's claims with the measurements.

    Every cell runs in a fresh process and is kept under `out`: one that has ended, well or badly, is run again
    only if the code changed, and an interrupted comparison continues where it stopped. A stop ends the running
    process and returns with status "interrupted".

    Args:
        out: folder for `reproduction.json` and `cells/`.
        backend: the one that claims are about; empty for the one that the paper names.
        dgl_python, memory_limit, force: as of `gnnbench.reproduce`.
        on_event: hears all that is known, the key of a cell and its step in words, empty before it starts.
        execute: runs a cell; in a fresh process if None.

    Raises:
        ConfigError: an unknown paper, scale or backend, or `out` holds a reproduction of something else.
        GnnbenchError: `out` cannot be written.
    """
    if problems := unknown("paper", [paper], names()) + unknown("scale", [scale], SCALES):
        raise ConfigError(*problems)
    module = registry.find("papers", paper.replace("-", "_"))
    ours = backend or module.PAPER.ours
    if ours not in (known := backends.with_kernels()):
        raise ConfigError(f"backend {ours!r} has no kernels of its own{did_you_mean(ours, known)}")
    if force:
        shutil.rmtree(out / "cells", ignore_errors=True)
    shared: dict[str, Any] = {"roots": roots, "code": code.digest(), "dgl_python": dgl_python}
    works = [
        Work(cell=cell, out=out / "cells" / cell.key, memory_limit=memory_limit, **shared)
        for cell in (each.with_backend(ours, module.PAPER.ours) for each in module.cells(scale))
    ]
    record = Reproduction(
        paper=_stated(module, ours)[0],
        scale=cast(Scale, scale),
        environment=environment.describe(),
        cells=[
            CellRecord(key=work.cell.key, definition=work.cell.model_dump(mode="json"), outcome=work.finished())
            for work in works
        ],
        findings=[],
    )
    path = out / "reproduction.json"
    if path.exists() and not force:
        _check_grid(path, record)

    def save() -> None:
        pairs = zip(works, record.cells, strict=True)
        record.measurements = [each for work, cell in pairs for each in _measured(work, cell, ours)]
        judge(record)
        files.save_json(record, path)

    def tell(work: cells.Work, step: str) -> None:
        if not step:
            save()
        on_event(record, work.cell.key, step)

    runner = partial(cells.one_by_one, on_step=tell, by=execute)
    record.status = cells.run(works, record.cells, runner, on_end=lambda _: None)
    save()
    return record


def judge(record: Reproduction) -> None:
    """Compare the paper's claims, as its module states them now, with the measurements of `record`."""
    module = registry.find("papers", record.paper.name.replace("-", "_"))
    pending = any(cell.outcome is None for cell in record.cells)
    record.paper, claims = _stated(module, record.paper.ours)
    record.findings = [finding(claim, record.measurements, pending) for claim in claims]


def _stated(module: ModuleType, ours: str) -> tuple[Paper, list[Claim]]:
    """A paper and its claims, about the backend `ours` instead of the one that its module names."""
    paper: Paper = module.PAPER
    if ours == paper.ours:
        return paper, module.CLAIMS
    notes = [note for note in paper.notes if not note.startswith("Ours: ")]
    changed = {"ours": ours, "notes": [f"Ours: backend `{ours}` instead of `{paper.ours}`", *notes]}
    claims = [
        claim.model_copy(update={"ours": ours}) if claim.ours == paper.ours else claim for claim in module.CLAIMS
    ]
    return paper.model_copy(update=changed), claims


def _check_grid(path: Path, record: Reproduction) -> None:
    """Make sure that what `path` holds is of the same paper, scale and grid."""
    old = files.load(Reproduction, path)
    before, now = ([cell.definition for cell in each.cells] for each in (old, record))
    # Fields that older versions did not have are left out of the comparison.
    same = len(before) == len(now) and all({**new, **was} == new for was, new in zip(before, now, strict=True))
    if not same or (old.paper.name, old.scale) != (record.paper.name, record.scale):
        raise ConfigError(
            f"{path.parent} holds {old.paper.name} at scale {old.scale} with another grid; "
            "choose another --out, or replace it with --force"
        )


def _measured(work: Work, cell: CellRecord, ours: str) -> list[Measurement]:
    """Return what a cell measured; one row with the reason where it left nothing."""
    if cell.outcome is None:
        return []
    try:
        result: list[Measurement] = work.cell.measured(work.out)
    except GnnbenchError:
        result = []
    if result or cell.outcome.status == "ok":
        return result
    blank = Measurement(
        cell=cell.key,
        graph=str(work.cell.dataset.get("name", work.cell.dataset["source"])),
        op=work.cell.op,
        phase="epoch" if isinstance(work.cell, Training) else "forward",
        width=0,
        implementation=ours,
        status=cell.outcome.status,
        reason=cell.outcome.reason,
    )
    return [blank]
