"""The verb that takes a graph apart for several processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnnbench.api.configs import load
from gnnbench.cli.options import DataRoot, Json, Latex, Markdown, Overrides, Quiet, numbers, show
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
        typer.Option("--plan", help="Write nothing: predict memory, exchanged bytes and time of an epoch."),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(help="YAML file with the model of --plan, gcn or sage; default: sage, 3 layers of 128."),
    ] = None,
    network: Annotated[
        str, typer.Option(metavar="SPEED", help="Of --plan: what a worker sends, such as 10Gb or 1.2GB a second.")
    ] = "10Gb",
    threads: Annotated[int, typer.Option(min=0, help="Of --plan, per worker; 0 uses PyTorch's default.")] = 0,
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
        table, text = _planned(_model(spec, config, overrides), counts, method, seed, network, threads, data_root)
    elif len(counts) > 1:
        raise ConfigError(f"--parts {parts}: one number of parts is written to a folder; lists are for --plan")
    else:
        loaded = load(None, overrides, spec)
        table, text = _written(loaded, counts[0], method, seed, out, data_root)
    show(table, text, as_json, quiet, markdown, latex)


def _written(loaded: Run, parts: int, method: Any, seed: int, out: Any, data_root: Path | None) -> Any:
    import torch

    from gnnbench import datasets
    from gnnbench.datasets import _maps as maps
    from gnnbench.partition import files
    from gnnbench.partition import part as partitions
    from gnnbench.partition import plan as plans
    from gnnbench.report import partition as report

    maps.check_new(out)
    dataset = datasets.single(datasets.load(loaded.dataset, datasets.roots(data_root)))
    layout = plans.kernels()
    graph = dataset.graph(torch.device("cpu"), layout)
    method, notes = partitions.chosen(method)
    assignment = partitions.assign(graph, parts, method, seed)
    written = files.write(dataset, graph, assignment, parts, out, config=loaded.dataset, method=method, seed=seed)
    return report.parts(written, out, notes), written.model_dump_json(indent=1)


def _planned(
    loaded: Run,
    parts: list[int],
    method: Any,
    seed: int,
    network: str,
    threads: int,
    data_root: Path | None,
) -> Any:
    from gnnbench import datasets
    from gnnbench.measure import clock, environment
    from gnnbench.partition import estimate
    from gnnbench.partition import plan as plans
    from gnnbench.partition.part import chosen
    from gnnbench.report import partition as report

    estimate.check(loaded.model)
    bytes_per_s, roots = plans.speed(network), datasets.roots(data_root)
    environment.use_threads(threads)
    kernels = plans.kernels()
    program_bytes = _program_bytes(loaded, kernels.name)
    if size := plans.published(loaded, roots):
        if method not in ("auto", "random"):
            raise ConfigError(
                f"{loaded.dataset.name} is not on disk, and without its edges only --method random can be planned"
            )
        counted = plans.of_size(loaded.dataset.name, size, parts, kernels)
    else:
        dataset = datasets.single(datasets.load(loaded.dataset, roots))
        counted = plans.of_dataset(dataset, parts, chosen(method)[0], seed, kernels)
    result = plans.plan(counted, loaded, kernels, network=bytes_per_s, program_bytes=program_bytes, now=clock.cpu)
    return report.plan(result), result.model_dump_json(indent=1)


def _program_bytes(loaded: Run, backend: str) -> int:
    """Memory of this process once it has trained on a few nodes, and so has loaded all that a worker loads."""
    import psutil

    from gnnbench import backends, config, datasets
    from gnnbench.training import loop, setup

    raw = {
        "dataset": {"source": "synthetic", "preset": "cora", "scale": 0.01},
        "model": loaded.model.model_dump(),
        "backend": {"name": backend},
    }
    small = config.validate(raw, "--plan")
    dataset = datasets.load(small.dataset, datasets.roots())
    model = setup.build(small, setup.Ends.of(dataset))
    ready = setup.prepare(small, model, backends.load(small.backend, small.train), dataset)
    loop.Trainer(model, ready.batching, small.train).train()
    return int(psutil.Process().memory_info().rss)


def _model(spec: str, path: Path | None, overrides: list[str] | None) -> Run:
    """The configuration of a plan."""
    from gnnbench import config, datasets

    if path is not None:
        return load(path, overrides, spec)
    raw: dict[str, Any] = {"dataset": datasets.parse(spec), "model": dict(MODEL)}
    given = {"dataset": spec, **config.override(raw, overrides or [])}
    return config.validate(raw, "--plan", given)
