"""Files of results: JSON and text, written atomically, and folders for them."""

from __future__ import annotations

import itertools
import json
import os
import platform
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import BaseModel

from gnnbench.errors import ConfigError, GnnbenchError
from gnnbench.results.schema import SCHEMA_VERSION

M = TypeVar("M", bound=BaseModel)

# Names in folders of results.
RUN, COMPARISON, INFERENCE = "results.json", "comparison.json", "inference.json"
SWEEP, REPRODUCTION = "sweep.json", "reproduction.json"


def new_folder(name: str) -> Path:
    """Create `runs/<name>-1`, or the next number that is free.

    Raises:
        GnnbenchError: the current folder cannot be written.
    """
    for number in itertools.count(1):
        folder = Path("runs", f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise GnnbenchError(f"{folder}: cannot be created: {error.strerror}; choose another --out") from None
        return folder
    raise AssertionError("numbers do not end")


def save_json(record: BaseModel, path: Path) -> None:
    """Write `record` to `path` so that a reader sees the old file or the whole new one.

    Raises:
        GnnbenchError: the folder cannot be written or the disk is full.
    """
    save_text(record.model_dump_json(indent=1), path)


def save_text(text: str, path: Path) -> None:
    """Write a text file atomically; errors as `save_json`."""
    save_bytes(text.encode(), path)


def save_bytes(content: bytes, path: Path) -> None:
    """Write a file atomically; errors as `save_json`."""
    save_by(lambda file: file.write(content), path)


def save_by(write: Callable[[BinaryIO], object], path: Path) -> None:
    """Let `write` write a file, which is there once it is whole; errors as `save_json`."""
    temporary = path.with_name(temporary_name(path.name))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_left(path)
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise GnnbenchError(f"{path}: cannot be written: {error.strerror}; choose another --out") from None


def temporary_name(name: str) -> str:
    """The name of what this process is writing, and will call `name` once it is whole."""
    return f".{name}.{platform.node()}-{os.getpid()}"


def remove_left(path: Path) -> None:
    """Remove what processes of this machine that were killed left of a file or folder which was to be `path`."""
    import psutil

    start = f".{path.name}.{platform.node()}-"
    for left in [each for each in path.parent.iterdir() if each.name.startswith(start)]:
        number = left.name.removeprefix(start).partition("-")[0]
        if number.isdecimal() and not psutil.pid_exists(int(number)):
            with suppress(FileNotFoundError):
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def load(kind: type[M], path: Path) -> M:
    """Read back what `save_json` wrote: a Result, a Comparison or a Bench.

    Raises:
        ConfigError: missing, not JSON, or of another schema.
    """
    try:
        return kind.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        name, problem = kind.__name__.lower(), str(error).splitlines()[0]
        raise ConfigError(f"{path}: is not a {name} of schema {SCHEMA_VERSION}: {problem}") from None
