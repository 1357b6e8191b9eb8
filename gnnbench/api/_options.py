"""Parameters that several functions share: their options on the command line, and what is made of them.

`Annotated[TYPE, OPTION]`, or `Annotated[TYPE, OPTION, COMMAND_LINE_TYPE]` where the command line knows TYPE not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from gnnbench.errors import BackendUnavailable, ConfigError, GnnbenchError, OutOfMemory, RunFailed, did_you_mean

if TYPE_CHECKING:
    from gnnbench.config import Run
    from gnnbench.kinds import ResultKind

AnyPath = str | Path
Source = str | Path | Mapping[str, Any] | None
Values = Mapping[str, Any] | Sequence[str] | None
Names = str | Sequence[str]
DGL = "GNNBENCH_DGL_PYTHON"
Numbers = str | Sequence[int]
ERRORS: dict[str, type[GnnbenchError]] = {"oom": OutOfMemory, "unavailable": BackendUnavailable}
SHIPPED = Path(__file__).parents[1] / "configs"
DEMO = SHIPPED / "demo.yaml"
OPTIONS = {"train.epochs": "--epochs", "train.workers": "--workers", "measure.memory_limit": "--memory-limit"}
# Where a graph has none: ops do not look at them.
BARE = {"dataset.random_features": 1, "dataset.random_labels": 2}
FOLDERS = (Path("configs"), SHIPPED)  # of configurations by their names


def in_a_folder(ctx: typer.Context, param: typer.CallbackParam, file: Path | None) -> Path | None:
    """Refuse a file in a folder that is missing, unless it is that of --out, before anything is measured."""
    if file and not file.parent.is_dir() and file.parent != ctx.params.get("out"):
        raise ConfigError(
            f"{param.opts[0]} {file}: there is no folder {file.parent}; create it, or name another file"
        )
    if file and file.is_dir():
        raise ConfigError(f"{param.opts[0]} {file}: is a folder; name a file in it")
    return file


DATA_ROOT = typer.Option(help="Folder of datasets; default: $GNNBENCH_DATA, then the user's cache folder.")
SET = typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a key of the configuration; repeatable.")

Config = Annotated[
    Source,
    typer.Argument(metavar="CONFIG", help="YAML file of one run, or its name in configs; default: a small graph."),
    Path | None,
]
Backend = Annotated[
    str,
    typer.Option(metavar="NAME[:KEY=VALUE]", help="Backend, such as isplib:fold_norm=false; `doctor` lists them."),
]
Spec = Annotated[
    str,
    typer.Option("--dataset", metavar="SPEC", help="Such as cora, ogbn-arxiv, synthetic:reddit:0.05, graph.mtx."),
]
Epochs = Annotated[int | None, typer.Option(help="Number of epochs, instead of the configuration's.")]
DataRoot = Annotated[AnyPath | None, DATA_ROOT, Path | None]
Limit = Annotated[
    str,
    typer.Option(
        "--memory-limit", metavar="SIZE", help="Such as 16GiB or 80%; a run that exceeds it ends as out of memory."
    ),
]
Out = Annotated[
    AnyPath | None,
    typer.Option(is_eager=True, help="Folder for the results; default: a new one in runs/."),
    Path | None,
]
Overrides = Annotated[Values, SET, list[str] | None]
Force = Annotated[bool, typer.Option("--force")]
Dgl = Annotated[str, typer.Option(metavar="PATH", envvar=DGL, help="Python interpreter with DGL installed.")]

K = TypeVar("K", bound="ResultKind")


def load(
    source: Source,
    overrides: Values = None,
    dataset: str = "",
    epochs: int | None = None,
    memory_limit: str = "",
    backend: str = "",
    workers: int | None = None,
) -> Run:
    """The configuration of a run.

    Args:
        source: a YAML file, the name of one in `configs`, or a mapping of its sections, in which a key with a dot
            counts as an override; None for the demo.
        overrides: values by key, or `"section.key=value"` each.
        dataset, epochs, memory_limit, backend, workers: override theirs where given.

    Raises:
        ConfigError: with every problem, one sentence each.
    """
    from gnnbench import config, datasets

    within: dict[str, Any] = {}
    if isinstance(source, Mapping):
        within = {key: value for key, value in source.items() if "." in key}
        source = {key: value for key, value in source.items() if key not in within}
    options = dict(zip(OPTIONS, (epochs, workers, memory_limit or None), strict=True))
    short = {key: value for key, value in options.items() if value is not None}
    return config.load(
        _found(source),
        within | config.by_key(overrides or ()) | short,
        dataset=datasets.parse(dataset) if dataset else None,
        backend=backend or None,
        names={key: f"config: {key}" for key in within} | {key: OPTIONS[key] for key in short},
        where="" if source else "the default configuration",
    )


def stem(source: Source) -> str:
    """The name of a configuration, for folders of its results."""
    return "run" if isinstance(source, Mapping) else Path(source or DEMO).stem


def names(given: str | Sequence[str]) -> list[str]:
    """`"pyg,isplib"` or names one by one, each once."""
    parts = given.split(",") if isinstance(given, str) else given
    result = [name.strip() for name in parts if name.strip()]
    if twice := next((name for name in result if result.count(name) > 1), None):
        raise ConfigError(f"{','.join(result)}: {twice} is given twice; name each once")
    return result


def _found(source: Source) -> Path | Mapping[str, Any]:
    """Find what `config.load` reads."""
    if source is None or isinstance(source, Mapping):
        return DEMO if source is None else source
    path = Path(source)
    if path.suffix or len(path.parts) != 1 or path.exists():
        return path
    known = {file.stem: file for folder in reversed(FOLDERS) for file in folder.glob("*.yaml")}
    if path.name not in known:
        hint = did_you_mean(path.name, known)
        raise ConfigError(f"{path}: is neither a file nor the name of a configuration{hint}")
    return known[path.name]


def ended(result: K, check: bool, reason: str = "") -> K:
    """The result, unless it did not come to its end and `check` asks for that."""
    status: str = getattr(result, "status", "ok")
    if not check or status == "ok":
        return result
    reason = reason or getattr(result, "reason", "") or kept(result, f"out={str(result.path.parent)!r}")
    raise KeyboardInterrupt(reason) if status == "interrupted" else ERRORS.get(status, RunFailed)(reason)


def kept(result: ResultKind, option: str) -> str:
    """Say what becomes of the measurements before a stop; `option` names their folder."""
    if result.continues:
        return f"the same command with {option} continues"
    return f"the measurements so far are in {result.path.parent}"


@contextmanager
def threads_kept() -> Iterator[None]:
    """Leave a notebook with the number of threads that it had, whatever a run asks for."""
    import torch

    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def with_dgl(python: str) -> Iterator[None]:
    """Let processes that start within a `with` find DGL in the environment of another interpreter."""
    before = os.environ.get(DGL)
    if python:
        os.environ[DGL] = python
    try:
        yield
    finally:
        if python and before is None:
            del os.environ[DGL]
        elif before is not None:
            os.environ[DGL] = before


def numbers(given: Numbers) -> list[int]:
    """`"16,32"`, or the numbers one by one."""
    each = [part for part in given.split(",") if part.strip()] if isinstance(given, str) else given
    try:
        return [int(number) for number in each]
    except ValueError:
        raise ConfigError(f"{given!r} is not a list of numbers such as 16,32,64") from None
