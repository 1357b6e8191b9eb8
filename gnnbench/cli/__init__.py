"""The command line: parses, calls, prints. A verb imports what it needs when it runs, so that help is quick.

__init__     the app: verbs, datasets, doctor
verb         the verbs that are functions of `gnnbench.api`, made of their parameters; options that verbs share
alone        results as a page, a list of them over time, and a graph in parts; what some verbs do before
streams      standard streams that may be gone
"""

from __future__ import annotations

import atexit
import errno
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from gnnbench import registry, stopping
from gnnbench.api._configs import load
from gnnbench.cli import alone, streams, verb
from gnnbench.cli.verb import EXIT_CODES, DataRoot, Json, Overrides, Plot, is_first, refuse_empty, show
from gnnbench.errors import DatasetError, GnnbenchError
from gnnbench.measure import waiting

SPECIAL: dict[str, dict[str, Any]] = {  # verbs with options that are of the command line alone
    "bench": {"instead": alone.unpictured, "plot": Plot},
    "profile": {"plot": Plot},
    "sweep": {"instead": alone.planned, "dry_run": alone.DryRun},
    "tune": {"instead": alone.cleared, "clear": alone.Clear, "plot": Plot},
}


class Verbs(TyperGroup):
    """Turns errors that are meant for the user into one sentence and an exit code."""

    asked = ""  # the verb that runs; of the others a list shows what they do

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {**dict.fromkeys(registry.names("api"), TyperCommand(None)), **self.commands}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in registry.names("api"):
            return super().get_command(ctx, cmd_name)
        function = getattr(registry.find("api", cmd_name), cmd_name)
        one = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        run = verb.command(function, **SPECIAL.get(cmd_name, {})) if cmd_name == self.asked else lambda: None
        one.command(cmd_name, epilog=EXIT_CODES, help=verb.summary(function))(run)
        return typer.main.get_command(one)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        refuse_empty(args)
        self.asked = args[0]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            try:
                with stopping.handled(stopping.interrupt):
                    return super().invoke(ctx)
            finally:
                sys.stdout.flush()  # which may fail, as any print
        except GnnbenchError as error:
            if is_first():
                print(f"gnnbench: {error}", file=sys.stderr)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            print(f"gnnbench: stopped by {stopping.by()}", file=sys.stderr)
            raise typer.Exit(stopping.exit_code()) from None
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            print("gnnbench: the disk written to is full; free some of it, or write elsewhere", file=sys.stderr)
            streams.forget(sys.stdout)  # as what is left is flushed again
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=Verbs,
    add_completion=False,
    rich_markup_mode=None,  # boxes would double the time to the help text
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

datasets_app = typer.Typer(rich_markup_mode=None, epilog=EXIT_CODES)
app.add_typer(datasets_app, name="datasets")


@app.callback(invoke_without_command=True, no_args_is_help=True, epilog=EXIT_CODES)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Train graph neural networks and compare the backends that run them, in time, memory and accuracy.

    \b
    gnnbench demo              compare backends on a built-in graph
    gnnbench compare gcn_cora  compare them on Cora, which is downloaded
    gnnbench doctor            show what can run here, and how to install the rest
    """
    if version:
        from gnnbench import __version__

        print(__version__)
        raise typer.Exit


@app.command(epilog=EXIT_CODES)
def demo() -> None:
    """Compare backends on a built-in graph."""
    app(["compare"], prog_name="gnnbench")


app.command(epilog=EXIT_CODES)(alone.partition)
app.command(epilog=EXIT_CODES)(alone.report)
app.command(epilog=EXIT_CODES)(alone.history)


@datasets_app.callback(invoke_without_command=True)
def datasets(ctx: typer.Context, data_root: DataRoot = None, as_json: Json = False) -> None:
    """List the datasets, or describe one."""
    if ctx.invoked_subcommand:
        return
    from gnnbench import datasets
    from gnnbench.report import datasets as report

    roots = datasets.roots(data_root)
    offers = datasets.listing(roots)
    facts = [{**vars(offer), "on_disk": offer.on_disk} for offer in offers]
    show(report.listing(offers, roots), json.dumps(facts, indent=1, default=str), as_json)


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
    from gnnbench import datasets
    from gnnbench.datasets import _describe as describe
    from gnnbench.report import datasets as report

    loaded = load(None, overrides, dataset=name)
    facts = describe.info(datasets.load(loaded.dataset, datasets.roots(data_root)))
    show(report.info(facts), facts.model_dump_json(indent=1), as_json)


@datasets_app.command(epilog=EXIT_CODES)
def convert(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as ogbn-products, or synthetic:reddit:0.05.")],
    out: Annotated[Path, typer.Option(help="Folder for the arrays, which is then a dataset by its path.")],
    overrides: Overrides = None,
    data_root: DataRoot = None,
    as_json: Json = False,
) -> None:
    """Write a graph as arrays, of which training reads what it samples."""
    from gnnbench import datasets
    from gnnbench.backends import isplib
    from gnnbench.datasets import mapped
    from gnnbench.report import datasets as report

    config = load(None, overrides, dataset=name).dataset
    loaded = datasets.load(config, datasets.roots(data_root))
    if isinstance(loaded, datasets.LinksDataset):
        raise DatasetError(
            f"{loaded.name} has links to predict, which such arrays do not hold; convert a graph of nodes, and "
            "train on it with --set dataset.task=links"
        )
    dataset = datasets.single(loaded)
    header = mapped.write(dataset, out, isplib.cpu_layout())
    show(report.arrays(header, out), header.model_dump_json(indent=1), as_json)


@app.command(epilog=EXIT_CODES)
def doctor(data_root: DataRoot = None, as_json: Json = False) -> None:
    """Show what is installed and what is missing."""
    from gnnbench import datasets
    from gnnbench import doctor as examination

    findings = examination.examine(datasets.roots(data_root))
    show(examination.table(findings), json.dumps(findings, indent=1), as_json)


def main() -> None:
    """Run the console script, and leave without tearing down PyTorch object by object, which takes a second."""
    streams.make_writable()
    waiting.spin_briefly()
    try:
        app(prog_name="gnnbench")
    except SystemExit as end:
        if "torch" not in sys.modules or not isinstance(end.code, int):
            raise
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code)
