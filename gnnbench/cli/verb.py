"""Verbs made of the functions of `gnnbench.api`: parameters are options, and results are shown and exported."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from gnnbench.cli import options
from gnnbench.cli.options import finish, is_first, show

COMMON = {
    "as_json": options.Json,
    "quiet": options.Quiet,
    "csv": options.Csv,
    "markdown": options.Markdown,
    "latex": options.Latex,
    "page": options.Page,
}


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

    every = own | {name: _option(name, kind) for name, kind in (more | COMMON).items()}
    run.__signature__ = inspect.Signature([*every.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {name: each.annotation for name, each in every.items()}
    return run


def _option(name: str, kind: Any) -> inspect.Parameter:
    """A parameter of the command line alone; a switch is off, and any other is not given."""
    default = False if get_args(kind)[0] is bool else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


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
        from gnnbench import stored
        from gnnbench.report import page

        files.save_text(page.html([stored.load(result.path)]), given.page)
    if given.plot and (panels := result.report.panels(result)):
        plots.save(panels, result.report.title(result), given.plot)
    quiet = given.quiet or (not records and bool(getattr(result, "reason", "")))  # nothing ran
    show(result.tables(), result, given.as_json, quiet, given.markdown, given.latex, saved=result.path)
    finish(result)
