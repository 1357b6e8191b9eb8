"""Options that several verbs share, and what verbs do with them."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from gnnbench import stopping
from gnnbench.api._options import DATA_ROOT, SET, in_a_folder, kept
from gnnbench.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from gnnbench.report.tables import Table


EXIT_CODES = (
    "Exit codes: 0 success, 1 a run failed, 2 bad input, 3 parity red (a backend's result differs from PyG's), "
    "4 slower than the baseline, 130 stopped by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP."
)


DataRoot = Annotated[Path | None, DATA_ROOT]
Overrides = Annotated[list[str] | None, SET]
Json = Annotated[bool, typer.Option("--json", help="Print only the result, as JSON on standard output.")]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", callback=in_a_folder, help="Write a plot too, as .png, .svg or .pdf."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print neither progress nor tables.")]
Csv = Annotated[
    Path | None, typer.Option("--csv", callback=in_a_folder, help="Write what the table is made of as CSV too.")
]
Markdown = Annotated[
    Path | None, typer.Option("--markdown", callback=in_a_folder, help="Write the table as Markdown too.")
]
Latex = Annotated[
    Path | None, typer.Option("--latex", callback=in_a_folder, help="Write the table as LaTeX too, for booktabs.")
]
Page = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE", callback=in_a_folder, help="Write the page of `gnnbench report` too."
    ),
]


def refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse what a variable that is not set leaves, before a verb takes it for its default."""
    for before, argument in itertools.pairwise(arguments):
        option, equals, value = argument.partition("=")
        if not argument or (option.startswith("--") and equals and not value):
            name = option or (before if before.startswith("-") else f"the argument after {before}")
            raise ConfigError(f"{name}: is empty; give a value, or leave it out")


def is_first() -> bool:
    """Return whether this process speaks to the user: not the others of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def show(
    report: Table | Sequence[Table],
    result: BaseModel | str,
    as_json: bool,
    quiet: bool = False,
    markdown: Path | None = None,
    latex: Path | None = None,
    *,
    saved: Path | None = None,
) -> None:
    """Print `result` as JSON or draw its tables, the last of which says where it is `saved`."""
    from gnnbench.report import tables
    from gnnbench.results import files

    drawn = [*report] if isinstance(report, Sequence) else [report]
    if saved:
        drawn[-1] = replace(drawn[-1], notes=[*drawn[-1].notes, f"Results: {saved}"])
    if markdown:
        files.save_text("\n".join(map(tables.markdown, drawn)), markdown)
    if latex:
        files.save_text(tables.latex(drawn), latex)
    if as_json:
        print(_printable(result if isinstance(result, str) else result.model_dump_json(indent=1)))
    elif not quiet:
        for place, table in enumerate(drawn):
            print("\n" * bool(place), end="")
            tables.show(table, tables.console(sys.stdout))


def _printable(text: str) -> str:
    """JSON, with escapes where standard output has not all of its characters."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), indent=1)
    return text


def finish(result: Any) -> NoReturn:
    """End a verb with the exit code of its result, after a sentence where it did not come to its end."""
    status, reason = getattr(result, "status", "ok"), getattr(result, "reason", "")
    if is_first() and (reason or status == "interrupted"):
        again = kept(result, f"--out {result.path.parent}")
        print(f"gnnbench: {reason or f'stopped by {stopping.by()}; {again}'}", file=sys.stderr)
    code = getattr(result, "exit_code", int(status != "ok"))
    raise typer.Exit(stopping.exit_code() if status == "interrupted" else code)
