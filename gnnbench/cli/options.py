"""Options that several verbs share, and what verbs do with them."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Protocol

import typer

from gnnbench import stopping
from gnnbench.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from gnnbench.report.tables import Table


class Finished(Protocol):
    """The record of a verb's measurements."""

    status: Any

    @property
    def exit_code(self) -> int: ...


EXIT_CODES = (
    "Exit codes: 0 success, 1 a run failed, 2 bad input, 3 parity red (a backend's result differs from PyG's), "
    "4 slower than the baseline, 130 stopped by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP."
)


def in_a_folder(ctx: typer.Context, param: typer.CallbackParam, file: Path | None) -> Path | None:
    """Refuse a file in a folder that is missing, unless it is that of --out, before anything is measured."""
    if file and not file.parent.is_dir() and file.parent != ctx.params.get("out"):
        raise ConfigError(
            f"{param.opts[0]} {file}: there is no folder {file.parent}; create it, or name another file"
        )
    if file and file.is_dir():
        raise ConfigError(f"{param.opts[0]} {file}: is a folder; name a file in it")
    return file


Config = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG", help="YAML file of one run, or its name in configs; default: a small graph."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a key of the configuration; repeatable."),
]
Backend = Annotated[
    str,
    typer.Option(metavar="NAME[:KEY=VALUE]", help="Backend, such as isplib:fold_norm=false; `doctor` lists them."),
]
Spec = Annotated[
    str,
    typer.Option("--dataset", metavar="SPEC", help="Such as cora, ogbn-arxiv, synthetic:reddit:0.05, graph.mtx."),
]
DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder of datasets; default: $GNNBENCH_DATA, then the user's cache folder."),
]
Limit = Annotated[
    str,
    typer.Option(
        "--memory-limit", metavar="SIZE", help="Such as 16GiB or 80%; a run that exceeds it ends as out of memory."
    ),
]
Epochs = Annotated[int | None, typer.Option(help="Number of epochs, instead of the configuration's.")]
Out = Annotated[
    Path | None, typer.Option(is_eager=True, help="Folder for the results; default: a new one in runs/.")
]
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


def numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",") if number.strip()]
    except ValueError:
        raise ConfigError(f"{text!r} is not a list of numbers such as 16,32,64") from None


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
    from gnnbench.report import latex as tex
    from gnnbench.report import tables
    from gnnbench.results import files

    drawn = [*report] if isinstance(report, Sequence) else [report]
    if saved:
        drawn[-1] = replace(drawn[-1], notes=[*drawn[-1].notes, f"Results: {saved}"])
    if markdown:
        files.save_text("\n".join(map(tables.markdown, drawn)), markdown)
    if latex:
        files.save_text(tex.document(drawn), latex)
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


def finish(finished: Finished, kept: str) -> NoReturn:
    """End a verb with the exit code of its record; `kept` says how to continue after a stop."""
    if finished.status == "interrupted":
        print(f"gnnbench: stopped by {stopping.by()}; {kept}", file=sys.stderr)
        raise typer.Exit(stopping.exit_code())
    raise typer.Exit(finished.exit_code)
