"""Verbs made of the functions of `gnnbench.api`: parameters are options, and results are shown and exported."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_args, get_origin, get_type_hints

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
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print neither progress nor tables.")]
_file = partial(typer.Option, callback=in_a_folder)
Plot = Annotated[Path | None, _file(metavar="FILE", help="Write a plot too, as .png, .svg or .pdf.")]
Csv = Annotated[Path | None, _file("--csv", help="Write what the table is made of as CSV too.")]
Markdown = Annotated[Path | None, _file("--markdown", help="Write the table as Markdown too.")]
Latex = Annotated[Path | None, _file("--latex", help="Write the table as LaTeX too, for booktabs.")]
Page = Annotated[Path | None, _file("--report", metavar="FILE", help="Write the page of `gnnbench report` too.")]
COMMON = {"as_json": Json, "quiet": Quiet, "csv": Csv, "markdown": Markdown, "latex": Latex, "page": Page}


def command(
    function: Callable[..., Any], *, instead: Callable[[Any], bool] | None = None, **more: Any
) -> Callable[..., None]:
    """Make a verb of a function that returns a `ResultKind`; its docstring helps.

    Args:
        instead: called first, with all options; if it returns True, that is all.
        more: types of options that the function does not have; `plot` draws the `panels` of its kind.
    """
    own = _parameters(function)
    unchecked = {"check": False} if "check" in inspect.signature(function).parameters else {}

    def run(**asked: Any) -> None:
        given = SimpleNamespace(**{"plot": None, **asked})
        if given.plot:
            from gnnbench.report import plots

            plots.check(given.plot)
        if not (instead and instead(given)):
            chosen = {name: asked[name] for name in own} | {"quiet": given.quiet} | unchecked
            _show(function(**chosen), given)

    every = dict(own)
    for name, kind in (more | COMMON).items():  # a switch is off, and any other is not given
        default = False if get_args(kind)[0] is bool else None
        every[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
    run.__signature__ = inspect.Signature([*every.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {name: each.annotation for name, each in every.items()}
    return run


def summary(function: Callable[..., Any]) -> str:
    """Return what the docstring of a function says before its parameters."""
    return (inspect.getdoc(function) or "").partition("\n\nArgs:")[0]


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Parameters that are options, as typer takes them; the docstring helps where the option has no help."""
    kinds = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
    hints = get_type_hints(SimpleNamespace(__annotations__=kinds), function.__globals__, include_extras=True)
    helps, result = _helps(inspect.getdoc(function) or ""), {}
    for name, each in inspect.signature(function).parameters.items():
        if get_origin(hints[name]) is Annotated:
            kind, option, *known = get_args(hints[name])
            if not option.help:
                option = type(option)(**{**vars(option), "help": helps.get(name, "")})
            annotation: Any = Annotated.__class_getitem__((known[0] if known else kind, option))
            result[name] = each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
    return result


def _helps(text: str) -> dict[str, str]:
    """By parameter, what the `Args` of a docstring say."""
    lines = re.search(r"\nArgs:\n(.*?)(?:\n\n|$)", text, re.DOTALL)
    found = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", lines[1] if lines else "", re.MULTILINE)
    texts = {name: re.sub(r"`(\w+)`", r"--\1", " ".join(said.split())) for name, said in found}
    return {name: text[:1].upper() + text[1:] for name, text in texts.items()}


def _show(result: Any, given: SimpleNamespace) -> None:
    """Print and export a result, and end with its exit code."""
    from gnnbench.report import plots, tables
    from gnnbench.results import files

    if not is_first():
        finish(result)
    records = result.records()
    if given.csv:
        files.save_text(tables.to_csv(records), given.csv)
    if given.page:
        from gnnbench.report import page

        files.save_text(page.html([result]), given.page)
    if given.plot and (panels := result.report.panels(result)):
        plots.save(panels, result.report.title(result), given.plot)
    quiet = given.quiet or (not records and bool(getattr(result, "reason", "")))  # nothing ran
    show(result.tables(), result, given.as_json, quiet, given.markdown, given.latex, saved=result.path)
    finish(result)


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
