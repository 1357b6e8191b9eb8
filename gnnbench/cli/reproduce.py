"""The verb that reproduces papers."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from gnnbench import registry
from gnnbench.cli.options import (
    Csv,
    DataRoot,
    Json,
    Latex,
    Limit,
    Markdown,
    Out,
    Quiet,
    finish,
    show,
)
from gnnbench.errors import ConfigError


def names() -> str:
    """Names of all papers, read from the names of files: importing them would take as long as torch does."""
    return ", ".join(name.replace("_", "-") for name in registry.names("papers"))


def reproduce(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help=f"One of: {names()}.")] = "",
    scale: Annotated[
        str,
        typer.Option(
            metavar="demo|small|paper",
            help="Built-in synthetic graphs (minutes), real graphs at the data root, or the paper's own graphs.",
        ),
    ] = "demo",
    backend: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The backend with kernels that claims are held against, such as cuda; by default the CPU's.",
        ),
    ] = "",
    dgl_python: Annotated[
        str,
        typer.Option(metavar="PATH", envvar="GNNBENCH_DGL_PYTHON", help="Python interpreter with DGL installed."),
    ] = "",
    data_root: DataRoot = None,
    memory_limit: Limit = "90%",
    out: Out = None,
    force: Annotated[
        bool, typer.Option("--force", help="Run again the cells that are finished in --out.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    csv: Csv = None,
    markdown: Markdown = None,
    latex: Latex = None,
) -> None:
    """Measure a paper's claims by its protocol and a corrected one."""
    if not paper:
        raise ConfigError(f"give a paper: {names()}")
    from gnnbench import launch

    launch.prepare()  # while PyTorch is imported here
    from gnnbench import datasets, papers
    from gnnbench.report import live, plots, reproduce_plots, tables
    from gnnbench.report import reproduce as report
    from gnnbench.results import files

    out = out or files.new_folder("-".join(filter(None, (paper, scale, backend))))
    view = live.ReproduceView.watched(quiet)
    with view or nullcontext():
        reproduction = papers.reproduce(
            paper,
            scale,
            out=out,
            roots=datasets.roots(data_root),
            backend=backend,
            dgl_python=dgl_python,
            memory_limit=memory_limit,
            force=force,
            on_event=view or (lambda _: None),
        )
    if csv:
        files.save_text(tables.to_csv(tables.records(reproduction.measurements)), csv)
    for name, panels in reproduce_plots.pictures(reproduction).items():
        plots.save(panels, report.title(reproduction), *(out / f"{name}{suffix}" for suffix in (".png", ".svg")))
    saved = out / "reproduction.json"
    show(report.tables(reproduction), reproduction, as_json, quiet, markdown, latex, saved=saved)
    finish(reproduction, f"the same command with --out {out} continues")
