"""The verb that measures a whole device: all ops and models, checked, then timed."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Annotated, Literal

import typer

from gnnbench.api.configs import names
from gnnbench.cli.options import (
    Csv,
    DataRoot,
    Json,
    Latex,
    Markdown,
    Out,
    Quiet,
    finish,
    show,
)
from gnnbench.errors import ConfigError, did_you_mean

SUITES = ("gpu",)
SCALES = ("full", "tiny")


def suite(
    name: Annotated[str, typer.Argument(metavar="NAME", help="gpu: all ops and models of backend cuda.")],
    graphs: Annotated[str, typer.Option(metavar="A,B", help="Only these graphs, such as cora,reddit.")] = "",
    ops: Annotated[str, typer.Option(metavar="A,B", help="Only these ops and models: gat,train-gat.")] = "",
    budget: Annotated[float, typer.Option(min=0, help="Seconds after which no further cell starts.")] = 420,
    scale: Annotated[
        str, typer.Option(metavar="full|tiny", help="Size of the graphs: full by default, tiny without a GPU.")
    ] = "",
    data_root: DataRoot = None,
    out: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
    csv: Csv = None,
    markdown: Markdown = None,
    latex: Latex = None,
) -> None:
    """Check and time all ops and models on a GPU.

    Without one, they are checked in Triton's interpreter.
    """
    if name not in SUITES:
        raise ConfigError(f"unknown suite {name!r}{did_you_mean(name, SUITES)}")
    if scale and scale not in SCALES:
        raise ConfigError(f"--scale {scale}: must be {' or '.join(SCALES)}")
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # before kernels are defined
    from gnnbench import datasets
    from gnnbench.backends.cuda import CudaKernels
    from gnnbench.benchmarks import suites
    from gnnbench.measure import clock
    from gnnbench.report import live, tables
    from gnnbench.report import suite as report
    from gnnbench.results import files

    device = torch.device(CudaKernels.device_type)
    size: Literal["full", "tiny"] = "tiny" if (scale or device.type) in ("tiny", "cpu") else "full"
    out = out or files.new_folder(f"{name}-suite")
    view = live.SuiteView.watched(quiet)
    with view or nullcontext():
        result = suites.run(
            suites.cells(names(graphs), names(ops), size),
            scale=size,
            out=out,
            roots=datasets.roots(data_root),
            now=clock.cpu,
            instants=clock.instants(device),
            budget_s=budget,
            on_event=view or (lambda *_: None),
        )
    if csv:
        files.save_text(tables.to_csv(tables.records(result.rows)), csv)
    show(report.table(result), result, as_json, quiet, markdown, latex, saved=out / suites.FILE)
    finish(result, f"the same command with --out {out} goes on")
