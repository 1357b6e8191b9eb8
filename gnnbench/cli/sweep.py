"""The plan of a sweep, in place of running it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gnnbench.cli.options import DataRoot, Json, Latex, Markdown, Out, Overrides, Quiet, show


def planned(
    grid: Annotated[Path, typer.Argument()],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the trials, and how long they may take; run nothing.")
    ] = False,
    set: Overrides = None,
    timing: Annotated[bool, typer.Option()] = True,
    data_root: DataRoot = None,
    out: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
    markdown: Markdown = None,
    latex: Latex = None,
) -> bool:
    """List the trials if that is all that is asked for."""
    if not dry_run:
        return False
    from gnnbench import datasets, history, sweeps
    from gnnbench.measure import clock
    from gnnbench.report import sweep as report

    roots = datasets.roots(data_root)
    plan = sweeps.load(grid, set or [], timed=timing)
    folder = out or Path("runs", f"{plan.name}-sweep")
    trials = sweeps.planned(plan, out=folder, roots=roots, epochs=history.epochs(roots.cache))
    text = json.dumps([each.as_json() for each in trials], indent=1)
    show(report.plan(plan.name, trials, clock.since_start()), text, as_json, quiet, markdown, latex)
    return True
