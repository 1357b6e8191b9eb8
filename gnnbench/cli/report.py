"""The verb that shows results again: nothing is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gnnbench.cli.options import Latex, Markdown, Quiet, show
from gnnbench.errors import ConfigError


def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUNS",
            help="Folders of train, compare, bench, profile, suite, reproduce or sweep, or JSON files, also "
            "those of tune.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page.")] = Path("report.html"),
    quiet: Quiet = False,
    latex: Latex = None,
    markdown: Markdown = None,
) -> None:
    """Show results as one page.

    It opens without a network and without JavaScript.
    """
    if not runs:
        raise ConfigError("give one or more results, such as runs/demo-compare-1 or results.json")
    from gnnbench import stored, units
    from gnnbench.report import page
    from gnnbench.results import files

    results = [stored.load(path) for path in runs]
    text = page.html(results)
    files.save_text(text, out)
    tables = [table for result in results for table in page.section(result).tables]
    show(tables, "", as_json=False, quiet=True, markdown=markdown, latex=latex)
    if not quiet:
        print(f"{out}: {units.counted(len(results), 'result')}, {units.size(len(text.encode()))}")
