"""The command line: parses, calls, prints. A verb imports what it needs when it runs, so that help is quick.

__init__     the app, and the verbs that measure nothing: datasets, partition, report, history, doctor
verb         the verbs that are functions of `gnnbench.api`, made of their parameters; options that verbs share
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

from gnnbench import measure, registry, stopping
from gnnbench.api._options import load
from gnnbench.api.bench import OTHERS
from gnnbench.cli import streams, verb
from gnnbench.cli.verb import EXIT_CODES, Csv, DataRoot, Json, Latex, Markdown, Overrides, Plot, Quiet, show
from gnnbench.errors import ConfigError, DatasetError, GnnbenchError, did_you_mean

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="List the trials, and how long they may take; run nothing.")
]
Clear = Annotated[bool, typer.Option("--clear", help="Delete all tuned choices.")]
METHODS = ("auto", "metis", "random", "contiguous")


def unpictured(given: Any) -> bool:
    """Refuse pictures of benchmarks that have none."""
    if given.plot and given.op in OTHERS:
        raise ConfigError(f"bench {given.op} has no --plot")
    return False


def planned(given: Any) -> bool:
    """List the trials of a sweep if that is all that is asked for."""
    if not given.dry_run:
        return False
    from gnnbench import datasets, history, sweeps
    from gnnbench.kinds import sweep as report
    from gnnbench.measure import clock

    plan = sweeps.load(given.grid, given.set or (), timed=given.timing)
    folder = given.out or Path("runs", f"{plan.name}-sweep")
    roots = datasets.roots(given.data_root)
    trials = sweeps.planned(plan, out=folder, roots=roots, epochs=history.epochs())
    text = json.dumps([each.as_json() for each in trials], indent=1)
    table = report.plan(plan.name, trials, clock.since_start())
    show(table, text, given.as_json, given.quiet, given.markdown, given.latex)
    return True


def cleared(given: Any) -> bool:
    """Delete tuned choices if that is asked for; True if there is no graph to tune."""
    if not given.clear:
        return False
    from gnnbench import datasets, units
    from gnnbench.tuning import store

    cache = datasets.roots(given.data_root).cache
    print(f"removed {units.counted(store.clear(cache), 'file')} of tuned choices from {cache}")
    return not given.target


SPECIAL: dict[str, dict[str, Any]] = {  # verbs with options that are of the command line alone
    "bench": {"instead": unpictured, "plot": Plot},
    "profile": {"plot": Plot},
    "sweep": {"instead": planned, "dry_run": DryRun},
    "tune": {"instead": cleared, "clear": Clear, "plot": Plot},
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
        verb.refuse_empty(args)
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
            if verb.is_first():
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


@app.command(epilog=EXIT_CODES)
def partition(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="Such as ogbn-products, synthetic:reddit:0.05, a mapped folder.")
    ],
    parts: Annotated[int, typer.Option(metavar="P", min=1, help="How many.")],
    out: Annotated[Path, typer.Option(help="Folder for the parts.")],
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="metis (few edges between parts), random, or contiguous (ranges of ids); the last two also work "
            "on mapped graphs larger than memory. auto is metis where pymetis is installed, otherwise contiguous.",
        ),
    ] = METHODS[0],
    seed: Annotated[int, typer.Option(min=0, help="Of metis and random.")] = 0,
    overrides: Overrides = None,
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
    markdown: Markdown = None,
    latex: Latex = None,
) -> None:
    """Write a graph as a part for each process of a training run."""
    if method not in METHODS:
        raise ConfigError(f"--method: unknown method {method!r}{did_you_mean(method, METHODS)}")
    config = load(None, overrides, spec).dataset
    import torch

    from gnnbench import datasets
    from gnnbench.backends import isplib
    from gnnbench.datasets import mapped
    from gnnbench.partition import part as partitions
    from gnnbench.report import datasets as report

    mapped.check_new(out)
    dataset = datasets.single(datasets.load(config, datasets.roots(data_root)))
    graph = dataset.graph(torch.device("cpu"), isplib.cpu_layout())
    by, notes = partitions.chosen(method)  # type: ignore[arg-type]
    assignment = partitions.assign(graph, parts, by, seed)
    written = partitions.write(dataset, graph, assignment, parts, out, config=config, method=by, seed=seed)
    show(report.parts(written, out, notes), written.model_dump_json(indent=1), as_json, quiet, markdown, latex)


@app.command(epilog=EXIT_CODES)
def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUNS",
            help="Folders of results, or JSON files, such as those of tune.",
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
    from gnnbench import kinds, units
    from gnnbench.report import page
    from gnnbench.results import files

    results = [kinds.load(path) for path in runs]
    text = page.html(results)
    files.save_text(text, out)
    tables = [table for result in results for table in result.section().tables]
    show(tables, "", as_json=False, quiet=True, markdown=markdown, latex=latex)
    if not quiet:
        print(f"{out}: {units.counted(len(results), 'result')}, {units.size(len(text.encode()))}")


@app.command(epilog=EXIT_CODES)
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
        plots.save(results.panels(entries), "Epochs over revisions", plot)
    show(results.tables(entries), json.dumps(listed, indent=1), as_json, quiet, markdown, latex)


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
    measure.spin_briefly()
    try:
        app(prog_name="gnnbench")
    except SystemExit as end:
        if "torch" not in sys.modules or not isinstance(end.code, int):
            raise
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code)
