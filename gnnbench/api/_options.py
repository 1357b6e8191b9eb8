"""Parameters that several functions share, with their options on the command line, and how the functions end.

`Annotated[TYPE, OPTION]`, or `Annotated[TYPE, OPTION, COMMAND_LINE_TYPE]` where the command line knows TYPE not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from gnnbench.api._configs import Overrides as Values
from gnnbench.errors import BackendUnavailable, ConfigError, GnnbenchError, OutOfMemory, RunFailed

if TYPE_CHECKING:
    from gnnbench.kinds import ResultKind

AnyPath = str | Path
Names = str | Sequence[str]
Numbers = str | Sequence[int]
ERRORS: dict[str, type[GnnbenchError]] = {"oom": OutOfMemory, "unavailable": BackendUnavailable}

DataRoot = Annotated[
    AnyPath | None,
    typer.Option(help="Folder of datasets; default: $GNNBENCH_DATA, then the user's cache folder."),
    Path | None,
]
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
Overrides = Annotated[
    Values,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a key of the configuration; repeatable."),
    list[str] | None,
]
Dgl = Annotated[
    str, typer.Option(metavar="PATH", envvar="GNNBENCH_DGL_PYTHON", help="Python interpreter with DGL installed.")
]

K = TypeVar("K", bound="ResultKind")


def ended(result: K, check: bool, reason: str) -> K:
    """The result, unless it did not come to its end and `check` asks for that."""
    status: str = getattr(result, "status", "ok")
    if check and status == "interrupted":
        raise KeyboardInterrupt(reason)
    if check and status != "ok":
        raise ERRORS.get(status, RunFailed)(reason)
    return result


@contextmanager
def threads_kept() -> Iterator[None]:
    """Leave a notebook with the number of threads that it had, whatever a run asks for."""
    import torch

    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def path(given: AnyPath | None) -> Path | None:
    return None if given is None else Path(given)


def numbers(given: Numbers) -> list[int]:
    """`"16,32"`, or the numbers one by one."""
    each = [part for part in given.split(",") if part.strip()] if isinstance(given, str) else given
    try:
        return [int(number) for number in each]
    except ValueError:
        raise ConfigError(f"{given!r} is not a list of numbers such as 16,32,64") from None
