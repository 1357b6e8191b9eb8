"""The command line: parses, calls, prints. A verb imports what it needs when it runs, so that help is quick."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from gnnbench.errors import ConfigError, GnnbenchError

if TYPE_CHECKING:
    from gnnbench.config import RunConfig
    from gnnbench.report.tables import Table

EXIT_CODES = (
    "Exit codes: 0 success, 1 a run failed, 2 bad input, 3 parity red (a backend computed something else), "
    "130 stopped by Ctrl-C."
)
DEMO = Path(__file__).with_name("demo.yaml")


class Verbs(TyperGroup):
    """Turns the errors meant for the user into one sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except GnnbenchError as error:
            print(f"gnnbench: {error}", file=sys.stderr)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            print("gnnbench: stopped by Ctrl-C", file=sys.stderr)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Verbs,
    add_completion=False,
    rich_markup_mode=None,  # boxes would double the time to the help text
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

datasets_app = typer.Typer(rich_markup_mode=None, epilog=EXIT_CODES)
app.add_typer(datasets_app, name="datasets")

Config = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG", help="YAML file of one run; without it, a small built-in synthetic graph."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a key of the configuration; repeatable."),
]
Spec = Annotated[
    str,
    typer.Option("--dataset", metavar="SPEC", help="Such as cora, ogbn-arxiv, synthetic:reddit:0.05, graph.mtx."),
]
DataRoot = Annotated[
    Path | None, typer.Option(help="Where datasets are: else $GNNBENCH_DATA, else the user's cache folder.")
]
Limit = Annotated[
    str,
    typer.Option(
        "--memory-limit", metavar="SIZE", help="Such as 16GiB or 80%; beyond it a run stops as out of memory."
    ),
]
Epochs = Annotated[int | None, typer.Option(help="Epochs, instead of the configuration's.")]
Out = Annotated[Path | None, typer.Option(help="Folder for what is written; without it a new one in runs/.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result, and it alone, as JSON on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print neither progress nor tables.")]
Markdown = Annotated[Path | None, typer.Option("--markdown", help="Write the table as Markdown too.")]


@app.callback(invoke_without_command=True, no_args_is_help=True, epilog=EXIT_CODES)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Train graph neural networks and compare the backends that run them, in time, memory and accuracy."""
    if version:
        from gnnbench import __version__

        print(__version__)
        raise typer.Exit


@app.command(epilog=EXIT_CODES)
def train(
    config: Config = None,
    overrides: Overrides = None,
    backend: Annotated[
        str,
        typer.Option(
            metavar="NAME[:KEY=VALUE]", help="Who runs the model, such as isplib:fold_norm=false: see `doctor`."
        ),
    ] = "",
    dataset: Spec = "",
    data_root: DataRoot = None,
    epochs: Epochs = None,
    memory_limit: Limit = "",
    out: Out = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN_DIR", help="Go on with the stopped run in this folder.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write every epoch as CSV too.")] = None,
    markdown: Markdown = None,
) -> None:
    """Train one model on one graph and measure every epoch."""
    from gnnbench import config as configs
    from gnnbench import datasets, results, run
    from gnnbench.report import live, tables
    from gnnbench.report import run as report

    if resume:
        if config or overrides or backend or dataset or epochs or memory_limit or out:
            raise ConfigError("--resume takes the configuration from the run's own folder; give no other one")
        stored = results.load_result(resume / "results.json")
        loaded = configs.validate(stored.config, str(resume / "results.json"))
    else:
        loaded = _load(config, overrides, dataset, epochs, memory_limit, backend)
    out = resume or out or results.new_folder(f"{(config or DEMO).stem}-{loaded.backend.name}")
    view = live.TrainView(tables.console(sys.stderr)) if _watched(quiet) else None
    with view or nullcontext():
        result = run.run(
            loaded, roots=datasets.roots(data_root), out=out, resume=resume is not None, on_event=view
        )
    if csv:
        results.save_text(tables.to_csv(report.records(result)), csv)
    nothing_ran = not result.samples
    _print(report.table(result, out), result.model_dump_json(indent=1), as_json, quiet or nothing_ran, markdown)
    if result.status != "ok":
        print(f"gnnbench: {result.reason}", file=sys.stderr)
        raise typer.Exit(130 if result.status == "interrupted" else 1)


@app.command(epilog=EXIT_CODES)
def compare(
    config: Config = None,
    backends: Annotated[
        str,
        typer.Option(
            metavar="A,B,C", help="Backends, pyg being the baseline; with options as in isplib:fold_norm=false."
        ),
    ] = "pyg,pyg-sparse,isplib",
    rounds: Annotated[int, typer.Option(min=1, help="Processes per backend, interleaved.")] = 3,
    epochs: Epochs = None,
    overrides: Overrides = None,
    dataset: Spec = "",
    data_root: DataRoot = None,
    memory_limit: Limit = "",
    out: Out = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another comparison in --out.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the table as CSV too.")] = None,
    markdown: Markdown = None,
) -> None:
    """Check backends against PyG, then time them in turn."""
    from gnnbench import compare as comparing
    from gnnbench import datasets, results
    from gnnbench.report import comparison as report
    from gnnbench.report import live, tables

    loaded = _load(config, overrides, dataset, epochs, memory_limit)
    out = out or results.new_folder(f"{(config or DEMO).stem}-compare")
    view = live.CompareView(tables.console(sys.stderr)) if _watched(quiet) else None
    with view or nullcontext():
        found = comparing.compare(
            loaded,
            [name.strip() for name in backends.split(",") if name.strip()],
            rounds=rounds,
            out=out,
            roots=datasets.roots(data_root),
            force=force,
            on_event=view or (lambda _: None),
        )
    if csv:
        results.save_text(tables.to_csv(report.records(found)), csv)
    _print(report.table(found, out), found.model_dump_json(indent=1), as_json, quiet, markdown)
    if found.status == "interrupted":
        print(f"gnnbench: stopped by Ctrl-C; the same command with --out {out} goes on", file=sys.stderr)
        raise typer.Exit(130)
    raise typer.Exit(found.exit_code)


@datasets_app.callback(invoke_without_command=True)
def datasets(ctx: typer.Context, data_root: DataRoot = None, as_json: Json = False) -> None:
    """List the datasets, or describe one."""
    if ctx.invoked_subcommand:
        return
    from gnnbench import datasets, describe
    from gnnbench.report import datasets as report

    roots = datasets.roots(data_root)
    found = describe.offers(roots)
    text = json.dumps([offer.model_dump(mode="json") for offer in found], indent=1)
    _print(report.listing(found, roots), text, as_json)


@datasets_app.command(epilog=EXIT_CODES)
def info(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Such as cora, ogbn-arxiv, synthetic:reddit:0.05, graph.mtx.")
    ],
    overrides: Overrides = None,
    data_root: DataRoot = None,
    as_json: Json = False,
) -> None:
    """Show size, degrees, classes, split and symmetry of one dataset."""
    from gnnbench import datasets, describe
    from gnnbench.report import datasets as report

    loaded = _load(None, overrides, dataset=name)
    found = describe.info(datasets.load(loaded.dataset, datasets.roots(data_root)))
    _print(report.info(found), found.model_dump_json(indent=1), as_json)


@app.command(epilog=EXIT_CODES)
def doctor(data_root: DataRoot = None, as_json: Json = False) -> None:
    """Show what is installed and what is missing."""
    from gnnbench import datasets
    from gnnbench import doctor as examination
    from gnnbench.report import installation as report

    found = examination.examine(datasets.roots(data_root))
    _print(report.table(found), json.dumps(found, indent=1), as_json)


def main() -> None:
    """The console script."""
    app(prog_name="gnnbench")


def _load(
    path: Path | None,
    overrides: list[str] | None,
    dataset: str = "",
    epochs: int | None = None,
    memory_limit: str = "",
    backend: str = "",
) -> RunConfig[Any, Any]:
    from gnnbench import config, datasets

    options = {"train.epochs": epochs, "measure.memory_limit": memory_limit or None}
    short = [f"{key}={json.dumps(value)}" for key, value in options.items() if value is not None]
    section = datasets.parse(dataset) if dataset else None
    return config.load(path or DEMO, [*(overrides or []), *short], dataset=section, backend=backend or None)


def _watched(quiet: bool) -> bool:
    return sys.stderr.isatty() and not quiet


def _print(table: Table, text: str, as_json: bool, quiet: bool = False, markdown: Path | None = None) -> None:
    """Print `text` or draw `table`."""
    from gnnbench import results
    from gnnbench.report import tables

    if markdown:
        results.save_text(tables.markdown(table), markdown)
    if as_json:
        print(text)
    elif not quiet:
        tables.show(table, tables.console(sys.stdout))
