"""Verbs made of the functions of `gnnbench.api`: parameters are options, and results are shown and exported."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from gnnbench.cli import options
from gnnbench.cli.options import finish, is_first, show

COMMON = {
    "as_json": (options.Json, False),
    "quiet": (options.Quiet, False),
    "csv": (options.Csv, None),
    "markdown": (options.Markdown, None),
    "latex": (options.Latex, None),
    "page": (options.Page, None),
}


def command(
    function: Callable[..., Any], *, instead: Callable[..., bool] | None = None, plots: bool = False
) -> Callable[..., None]:
    """Make a verb of a function that returns a `ResultKind`; its docstring helps.

    Args:
        instead: called first, with its own parameters, which are options too; if it returns True, that is all.
        plots: whether `--plot` draws the `panels` of its kind.
    """
    own, extra = _parameters(function), _parameters(instead) if instead else {}
    common = COMMON | ({"plot": (options.Plot, None)} if plots else {})
    unchecked = {"check": False} if "check" in inspect.signature(function).parameters else {}

    def run(**given: Any) -> None:
        if plot := given.get("plot"):
            from gnnbench.report import plots

            plots.check(plot)
        if instead and instead(**{name: given[name] for name in extra}):
            return
        chosen = {name: given[name] for name in own} | {"quiet": given["quiet"]} | unchecked
        _show(function(**chosen), **{name: given[name] for name in common})

    options_of_all = {
        name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in common.items()
    }
    every = own | {name: each for name, each in extra.items() if name not in own} | options_of_all
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


def _show(
    result: Any,
    as_json: bool,
    quiet: bool,
    csv: Path | None,
    markdown: Path | None,
    latex: Path | None,
    page: Path | None,
    plot: Path | None = None,
) -> None:
    """Print and export a result, and end with its exit code."""
    from gnnbench.report import plots, tables
    from gnnbench.results import files

    if not is_first():
        finish(result)
    records = result.records()
    if csv:
        files.save_text(tables.to_csv(records), csv)
    if page:
        from gnnbench import stored
        from gnnbench.report import page as pages

        files.save_text(pages.html([stored.load(result.path)]), page)
    if plot and (panels := result.report.panels(result)):
        plots.save(panels, result.report.title(result), plot)
    nothing_ran = not records and bool(getattr(result, "reason", ""))
    show(result.tables(), result, as_json, quiet or nothing_ran, markdown, latex, saved=result.path)
    finish(result)
