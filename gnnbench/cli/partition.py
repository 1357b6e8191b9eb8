"""The verb that takes a graph apart for several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gnnbench.api._configs import load
from gnnbench.cli.options import DataRoot, Json, Latex, Markdown, Overrides, Quiet, show
from gnnbench.errors import ConfigError, did_you_mean

METHODS = ("auto", "metis", "random", "contiguous")


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
    from gnnbench.datasets import _maps as maps
    from gnnbench.partition import files
    from gnnbench.partition import part as partitions
    from gnnbench.report import datasets as report

    maps.check_new(out)
    dataset = datasets.single(datasets.load(config, datasets.roots(data_root)))
    graph = dataset.graph(torch.device("cpu"), isplib.cpu_layout())
    by, notes = partitions.chosen(method)  # type: ignore[arg-type]
    assignment = partitions.assign(graph, parts, by, seed)
    written = files.write(dataset, graph, assignment, parts, out, config=config, method=by, seed=seed)
    show(report.parts(written, out, notes), written.model_dump_json(indent=1), as_json, quiet, markdown, latex)
