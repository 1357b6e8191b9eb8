"""The verb that varies a run along axes."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gnnbench.cli.options import (
    Csv,
    DataRoot,
    Json,
    Latex,
    Markdown,
    Out,
    Overrides,
    Page,
    Quiet,
    finish,
    show,
)
from gnnbench.errors import ConfigError

if TYPE_CHECKING:
    from gnnbench.sweeps import Queue


def sweep(
    file: Annotated[
        Path, typer.Argument(metavar="GRID", help="YAML file: run, grid (lists of values by key) and repeats.")
    ],
    overrides: Overrides = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the trials, and how long they may take; run nothing.")
    ] = False,
    jobs: Annotated[
        str,
        typer.Option(
            metavar="N|slurm[:N]", help="Trials side by side, or jobs of a Slurm cluster, at most N at a time."
        ),
    ] = "1",
    timing: Annotated[
        bool, typer.Option("--timing/--no-timing", help="Give times, which needs trials that run alone.")
    ] = True,
    partition: Annotated[str, typer.Option(metavar="NAME", help="Slurm partition.")] = "",
    minutes: Annotated[
        int, typer.Option("--time", metavar="MINUTES", min=1, help="Slurm's limit of a trial.")
    ] = 60,
    gpus: Annotated[int, typer.Option(metavar="N", min=0, help="GPUs of a trial on Slurm.")] = 0,
    exclusive: Annotated[
        bool, typer.Option("--exclusive", help="A node of its own for every trial on Slurm.")
    ] = False,
    data_root: DataRoot = None,
    out: Out = None,
    force: Annotated[
        bool, typer.Option("--force", help="Run again the trials that are finished in --out.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    csv: Csv = None,
    markdown: Markdown = None,
    latex: Latex = None,
    page: Page = None,
) -> None:
    """Train a run over a grid of its keys, with several seeds.

    The best configuration is chosen by validation. Finished trials are kept in --out, by default runs/GRID-sweep:
    the same command continues.
    """
    from gnnbench import datasets, history, sweeps
    from gnnbench.measure import clock
    from gnnbench.report import live, plots, sweep_plots, tables
    from gnnbench.report import sweep as report
    from gnnbench.results import files

    queue, side_by_side = _queue(jobs, partition, minutes, gpus, exclusive)
    roots = datasets.roots(data_root)
    plan = sweeps.load(file, overrides or [], timed=timing)
    out = out or Path("runs", f"{plan.name}-sweep")
    if dry_run:
        trials = sweeps.planned(plan, out=out, roots=roots, epochs=history.epochs(roots.cache))
        text = json.dumps([each.as_json() for each in trials], indent=1)
        show(report.plan(plan.name, trials, clock.since_start()), text, as_json, quiet, markdown, latex)
        return
    view = live.SweepView.watched(quiet)
    with view or nullcontext():
        record = sweeps.sweep(
            plan,
            out=out,
            roots=roots,
            force=force,
            jobs=side_by_side,
            queue=queue,
            on_event=view or (lambda _: None),
        )
    if csv:
        files.save_text(tables.to_csv(report.records(record)), csv)
    for name, panels in sweep_plots.pictures(record).items():
        plots.save(panels, report.title(record), *(out / f"{name}{suffix}" for suffix in (".png", ".svg")))
    if page:
        from gnnbench.report import page as pages

        files.save_text(pages.html([pages.Stored("sweep", record, out / "sweep.json")]), page)
    show(report.table(record), record, as_json, quiet, markdown, latex, saved=out / "sweep.json")
    finish(record, "the same command continues")


def _queue(jobs: str, partition: str, minutes: int, gpus: int, exclusive: bool) -> tuple[Queue | None, int]:
    """The queue of a cluster if one is asked for, and the number of trials that run side by side here."""
    from gnnbench.sweeps import Queue

    match = re.fullmatch(r"(slurm:?)?([1-9]\d*)?", jobs)
    if not match or not jobs or jobs == "slurm:" or (match[1] == "slurm" and match[2]):
        raise ConfigError(f"--jobs {jobs}: must be a number such as 4, slurm, or slurm:16")
    if match[1]:
        abreast = int(match[2] or Queue.abreast)
        return Queue(abreast, partition, minutes, gpus, exclusive), 1
    if partition or gpus or exclusive:
        raise ConfigError("--partition, --gpus and --exclusive are of a cluster; add --jobs slurm")
    return None, int(match[2])
