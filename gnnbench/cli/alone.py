"""Verbs of the command line alone, which measure nothing; and what others do before measuring, or in its place."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gnnbench.api._configs import load
from gnnbench.api.bench import OTHERS
from gnnbench.cli.verb import Csv, DataRoot, Json, Latex, Markdown, Overrides, Plot, Quiet, show
from gnnbench.errors import ConfigError, did_you_mean

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="List the trials, and how long they may take; run nothing.")
]
Clear = Annotated[bool, typer.Option("--clear", help="Delete all tuned choices.")]
METHODS = ("auto", "metis", "random", "contiguous")


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
