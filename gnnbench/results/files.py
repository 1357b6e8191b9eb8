"""Files of results: JSON and text, written atomically, and folders for them."""

from __future__ import annotations

import itertools
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from gnnbench.errors import GnnbenchError
from gnnbench.results.schema import SCHEMA_VERSION

M = TypeVar("M", bound=BaseModel)


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
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise GnnbenchError(f"{path}: cannot be written: {error.strerror}; choose another --out") from None


def load(kind: type[M], path: Path) -> M:
    """Read back what `save_json` wrote: a Result, a Comparison or a Bench.

    Raises:
        GnnbenchError: missing, not JSON, or of another schema.
    """
    try:
        return kind.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise GnnbenchError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        name, problem = kind.__name__.lower(), str(error).splitlines()[0]
        raise GnnbenchError(f"{path}: is not a {name} of schema {SCHEMA_VERSION}: {problem}") from None
