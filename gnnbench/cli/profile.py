"""The verb that shows where the time of an epoch goes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gnnbench import stopping
from gnnbench.cli.options import (
    Backend,
    Config,
    Csv,
    DataRoot,
    Json,
    Latex,
    Limit,
    Markdown,
    Out,
    Overrides,
    Plot,
    Quiet,
    Spec,
    in_a_folder,
    show,
)


def profile(
    config: Config = None,
    overrides: Overrides = None,
    backend: Backend = "",
    dataset: Spec = "",
    data_root: DataRoot = None,
    epochs: Annotated[int, typer.Option(help="Epochs to profile; as many are timed before, after warm-up.")] = 3,
    rows: Annotated[int, typer.Option(min=1, help="Ops in the table; the JSON has all.")] = 20,
    memory_limit: Limit = "",
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=in_a_folder,
            help="Write a Chrome trace, as .json or .json.gz, for ui.perfetto.dev.",
        ),
    ] = None,
    plot: Plot = None,
    out: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
    csv: Csv = None,
    markdown: Markdown = None,
    latex: Latex = None,
) -> None:
    """Show where the time of an epoch goes, by layer and op.

    A profiled epoch is slower than others; both are measured, and the table says by how much. --plot draws memory
    over time.
    """
    from gnnbench import api
    from gnnbench.report import plots, tables
    from gnnbench.report import profile as report
    from gnnbench.results import files

    if plot:
        plots.check(plot)
    record = api.profile(
        config,
        backend=backend,
        dataset=dataset,
        epochs=epochs,
        set=overrides,
        memory_limit=memory_limit,
        data_root=data_root,
        trace=trace,
        out=out,
        quiet=quiet,
        check=False,
    )
    if csv:
        files.save_text(tables.to_csv(tables.records(record.ops)), csv)
    if plot and (timeline := report.memory(record)):
        plots.save([timeline], report.title(record), plot)
    drawn = report.tables(record, rows=rows, trace=trace)
    show(drawn, record, as_json, quiet or not record.ops, markdown, latex, saved=record.path)
    if record.status != "ok":
        print(f"gnnbench: {record.reason}", file=sys.stderr)
        raise typer.Exit(stopping.exit_code() if record.status == "interrupted" else 1)
