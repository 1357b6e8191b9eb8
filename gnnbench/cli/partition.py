"""The verb that takes a graph apart for several processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnnbench.api._configs import load
from gnnbench.api._options import numbers
from gnnbench.cli.options import DataRoot, Json, Latex, Markdown, Overrides, Quiet, show
from gnnbench.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from gnnbench.config import Run

METHODS = ("auto", "metis", "random", "contiguous")
MODEL = {"name": "sage", "layers": 3, "hidden": 128}  # of plans without a configuration


def partition(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="Such as ogbn-products, synthetic:reddit:0.05, a mapped folder.")
    ],
    parts: Annotated[str, typer.Option(metavar="P", help="How many; with --plan also a list such as 16,32,64.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the parts.")] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="metis (few edges between parts), random, or contiguous (ranges of ids); the last two also work "
            "on mapped graphs larger than memory. auto is metis where pymetis is installed, otherwise contiguous.",
        ),
    ] = METHODS[0],
    seed: Annotated[int, typer.Option(min=0, help="Of metis and random.")] = 0,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Write nothing: predict memory and exchanged bytes of each worker."),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(help="YAML file with the model of --plan; default: sage, 3 layers of 128."),
    ] = None,
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
    counts = numbers(parts)
    if not counts or min(counts) < 1:
        raise ConfigError(f"--parts {parts}: give numbers from 1 up")
    if plan == (out is not None):
        raise ConfigError("give either --out FOLDER, to write parts, or --plan")
    if plan:
        table, text = _planned(_model(spec, config, overrides), counts, method, seed, data_root)
    elif len(counts) > 1:
        raise ConfigError(f"--parts {parts}: one number of parts is written to a folder; lists are for --plan")
    else:
        loaded = load(None, overrides, spec)
        table, text = _written(loaded, counts[0], method, seed, out, data_root)
    show(table, text, as_json, quiet, markdown, latex)


def _written(loaded: Run, parts: int, method: Any, seed: int, out: Any, data_root: Path | None) -> Any:
    import torch

    from gnnbench import datasets
    from gnnbench.backends import isplib
    from gnnbench.datasets import _maps as maps
    from gnnbench.partition import files
    from gnnbench.partition import part as partitions
    from gnnbench.report import partition as report

    maps.check_new(out)
    dataset = datasets.single(datasets.load(loaded.dataset, datasets.roots(data_root)))
    graph = dataset.graph(torch.device("cpu"), isplib.cpu_layout())
    method, notes = partitions.chosen(method)
    assignment = partitions.assign(graph, parts, method, seed)
    written = files.write(dataset, graph, assignment, parts, out, config=loaded.dataset, method=method, seed=seed)
    return report.parts(written, out, notes), written.model_dump_json(indent=1)


def _planned(loaded: Run, parts: list[int], method: Any, seed: int, data_root: Path | None) -> Any:
    import psutil

    from gnnbench import datasets
    from gnnbench.backends import isplib
    from gnnbench.partition import plan as plans
    from gnnbench.report import partition as report
    from gnnbench.training import setup

    setup.build(
        loaded, setup.ModelDims(features=1, outputs=1)
    )  # loads what a worker loads, and refuses what it refuses
    program, roots = int(psutil.Process().memory_info().rss), datasets.roots(data_root)
    layout = isplib.cpu_layout()
    result = plans.plan(loaded, roots, parts, method, seed, layout=layout, program_bytes=program)
    return report.plan(result), result.model_dump_json(indent=1)


def _model(spec: str, path: Path | None, overrides: list[str] | None) -> Run:
    """The configuration of a plan."""
    from gnnbench import config, datasets

    if path is not None:
        return load(path, overrides, spec)
    raw: dict[str, Any] = {"dataset": datasets.parse(spec), "model": dict(MODEL)}
    given = {"dataset": spec, **config.override(raw, overrides or [])}
    return config.validate(raw, "--plan", given)
