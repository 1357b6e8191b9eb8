"""Does what verbs do before the functions that they are made of, or in place of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gnnbench.api import _options as api
from gnnbench.api.bench import OTHERS
from gnnbench.cli.options import Json, Latex, Markdown, Plot, Quiet, show
from gnnbench.errors import ConfigError


def unpictured(op: Annotated[str, typer.Argument()], *, plot: Plot = None) -> bool:
    """Refuse pictures of benchmarks that have none."""
    if plot and op in OTHERS:
        raise ConfigError(f"bench {op} has no --plot")
    return False


def planned(
    grid: Annotated[Path, typer.Argument()],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the trials, and how long they may take; run nothing.")
    ] = False,
    set: api.Overrides = None,
    timing: Annotated[bool, typer.Option()] = True,
    data_root: api.DataRoot = None,
    out: api.Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
    markdown: Markdown = None,
    latex: Latex = None,
) -> bool:
    """List the trials of a sweep if that is all that is asked for."""
    if not dry_run:
        return False
    from gnnbench import datasets, history, sweeps
    from gnnbench.measure import clock
    from gnnbench.report import sweep as report

    roots = datasets.roots(api.path(data_root))
    plan = sweeps.load(grid, set or (), timed=timing)
    folder = Path(out or Path("runs", f"{plan.name}-sweep"))
    trials = sweeps.planned(plan, out=folder, roots=roots, epochs=history.epochs())
    text = json.dumps([each.as_json() for each in trials], indent=1)
    show(report.plan(plan.name, trials, clock.since_start()), text, as_json, quiet, markdown, latex)
    return True


def cleared(
    target: Annotated[str, typer.Argument()] = "",
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Delete all tuned choices.")] = False,
    data_root: api.DataRoot = None,
) -> bool:
    """Delete tuned choices if that is asked for; True if there is no graph to tune."""
    from gnnbench import datasets, units
    from gnnbench.tuning import store

    if clear:
        cache = datasets.roots(api.path(data_root)).cache
        print(f"removed {units.counted(store.clear(cache), 'file')} of tuned choices from {cache}")
    return clear and not target
