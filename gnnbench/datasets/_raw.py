"""Raw files of other people's loaders: fetch them whole or not at all, and name the one that cannot be read."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gnnbench.datasets import _cache, _unpickle
from gnnbench.errors import DatasetError, GnnbenchError

T = TypeVar("T")
CONNECT_TIMEOUT = 20.0  # seconds without an answer


class _Stop(Exception):
    """Ends a constructor once its dataset object knows its folders; carries that object."""


def stop(dataset: Any) -> None:
    """In place of PyG's `_download` or `_process`: what comes before it is all that is wanted."""
    raise _Stop(dataset)


def construct(cls: type, members: Mapping[str, Any], **arguments: Any) -> Any:
    """An object of `cls` with `members` (methods, folders) replaced, unfinished if one of them is `stop`."""
    try:
        return type(cls.__name__, (cls,), dict(members))(**arguments)
    except _Stop as stopped:
        return stopped.args[0]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep loaders from printing: the terminal is ours, and stdout may have to be pure JSON."""
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of Python, NumPy and torch, which PyG draws from; leave them as they were."""
    import random

    import numpy as np
    import torch

    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            torch.manual_seed(seed)
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


@contextlib.contextmanager
def reading(what: str, files: Sequence[Path]) -> Iterator[None]:
    """Unpickle arrays alone, and turn whatever a loader raises into a DatasetError that names which of `files`."""
    try:
        with _unpickle.plain_only():
            yield
    except GnnbenchError:
        raise
    except MemoryError as error:
        raise DatasetError(f"{what} needs more memory to be read than there is: {error}") from error
    except ImportError as error:
        raise DatasetError(f"{what} needs a package that is not installed: {error}") from error
    except Exception as error:
        if found := [each for each in _chain(error) if isinstance(each, _unpickle.Forbidden)]:
            raise DatasetError(
                f"{_culprit(error, files)}: names the Python object {found[0]}, and reading it could run any "
                "code; gnnbench reads arrays and numbers alone: delete the file and fetch it again from its source"
            ) from None
        reason = str(error).strip().splitlines()
        raise DatasetError(
            f"{_culprit(error, files)}: cannot be read as part of {what}, so it is probably truncated or corrupt "
            f"({type(error).__name__}{': ' + reason[0] if reason else ''}); replace it"
        ) from error


def read(path: Path, reader: Callable[[Path], T]) -> T:
    """Return what a reader makes of one file; errors as `reading`."""
    with reading(path.name, [path]), quiet():
        return reader(path)


def located(path: Path, raw: Path, noun: str, fits: Callable[[Path], bool]) -> Path:
    """`path` in the working folder, or else in the data root; DatasetError where neither `fits`."""
    for candidate in (path.expanduser(), raw / path):
        if fits(candidate):
            return candidate
    raise DatasetError(f"{path}: there is no such {noun}, neither here nor in {raw}; check the path")


def suffix(path: Path) -> str:
    """The suffix below a `.gz`, in lower case."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def fetch(what: str, folder: Path, missing: str, stand_in: str, download: Callable[[Path], Path]) -> None:
    """Fill `folder` by `download(temporary)`, which returns the folder whose content belongs there.

    Raises:
        DatasetError: the download failed; says what is missing, where it goes and what stands in.
    """
    from rich.console import Console

    terminal = Console(file=sys.stderr)  # the one of now, before `quiet`
    patience = socket.getdefaulttimeout()
    try:
        with _cache.beside(folder) as temporary:
            socket.setdefaulttimeout(CONNECT_TIMEOUT)
            with terminal.status(f"downloading {what}"), quiet(), _unpickle.plain_only():
                content = download(temporary)
            folder.mkdir(exist_ok=True)
            for file in content.iterdir():
                file.replace(folder / file.name)
    except Exception as error:
        reason = str(error).strip().splitlines()
        raise DatasetError(
            f"{what} is not on disk ({missing}) and downloading it failed "
            f"({reason[0] if reason else type(error).__name__}); "
            f"put its files into {folder}, choose another --data-root, or use --dataset {stand_in}"
        ) from error
    finally:
        socket.setdefaulttimeout(patience)


def writable_root(raw: Path, cache: Path) -> Path:
    """Where downloads go: the data root, or the cache where that is not meant to be written, even by root."""
    folder = _cache.nearest(raw)
    is_writable = os.access(folder, os.W_OK) and folder.stat().st_mode & 0o222
    return raw if is_writable else cache / "data"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, the one that it was raised from, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _culprit(error: BaseException, files: Sequence[Path]) -> str:
    """The file that the innermost frame of the error was handling, else all of them."""
    names = {str(file): file for file in files}
    for each in _chain(error):
        if (name := str(getattr(each, "filename", None))) in names:
            return name
        frames = [frame for frame, _ in traceback.walk_tb(each.__traceback__)]
        for frame in reversed(frames):
            for value in frame.f_locals.values():
                value = getattr(value, "name", None) if isinstance(value, io.IOBase) else value
                if isinstance(value, (str, Path)) and str(value) in names:
                    return str(value)
    if len(files) == 1:
        return str(files[0])
    return f"{files[0].parent} ({', '.join(sorted(file.name for file in files))})"
