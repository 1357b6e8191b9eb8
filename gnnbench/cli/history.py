"""The verb that lists results over time."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from gnnbench.cli.options import (
    Csv,
    Json,
    Latex,
    Markdown,
    Plot,
    Quiet,
    show,
)


def history(
    words: Annotated[
        str, typer.Argument(metavar="WORDS", help="Only results with these in their title, backend or path.")
    ] = "",
    below: Annotated[
        list[Path] | None,
        typer.Option("--in", metavar="PATH", help="Results below these folders; repeatable; default: runs."),
    ] = None,
    all_machines: Annotated[bool, typer.Option("--all-machines", help="Those of other machines too.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="The newest results.")] = 50,
    plot: Plot = None,
    as_json: Json = False,
    quiet: Quiet = False,
    csv: Csv = None,
    markdown: Markdown = None,
    latex: Latex = None,
) -> None:
    """List results over time."""
    from gnnbench import history as results
    from gnnbench.report import history as report
    from gnnbench.report import plots, tables
    from gnnbench.results import files

    if plot:
        plots.check(plot)
    known, refused = results.entries(below or (), words, all_machines=all_machines)
    print(*(f"gnnbench: {each}" for each in refused), sep="\n", end="\n" * bool(refused), file=sys.stderr)
    newest = [*dict.fromkeys(entry.path for entry in known)][-limit:]
    entries = [entry for entry in known if entry.path in newest]
    listed = [entry._asdict() for entry in entries]
    if csv:
        files.save_text(tables.to_csv(listed), csv)
    if plot and entries:
        plots.save(report.panels(entries), "Epochs over revisions", plot)
    show(report.tables(entries), json.dumps(listed, indent=1), as_json, quiet, markdown, latex)
