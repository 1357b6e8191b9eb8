"""The cache of processed files: a folder is there whole or not at all, and is renamed when its origin changes."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gnnbench.errors import DatasetError
from gnnbench.results import files


def fingerprint(paths: Iterable[Path], *words: str) -> str:
    """Changes with `words` and with the place, size or time of change of any file."""
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(paths)]
    return hashlib.sha256(repr((stats, words)).encode()).hexdigest()[:16]


def built(folder: Path, build: Callable[[Path], Any]) -> Path:
    """`folder`, which `build` fills first where it is missing; another process sees nothing of it or all.

    Raises:
        DatasetError: the cache cannot be written or its disk is full.
    """
    if folder.is_dir():
        return folder
    made(folder.parent)
    try:
        files.remove_left(folder)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{files.temporary_name(folder.name)}-"))
    except OSError as error:
        raise _unwritable(folder.parent, error) from None
    try:
        build(temporary)
        temporary.replace(folder)
    except OSError as error:
        if folder.is_dir():  # another process was faster
            return folder
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise _unwritable(folder.parent, error) from None
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def made(folder: Path) -> Path:
    """Create a folder of the cache where it is missing.

    Raises:
        DatasetError: it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None
    return folder


def is_writable(folder: Path) -> bool:
    """Return whether `folder`, or the nearest parent of it that exists, is meant to be written, even for root."""
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK) and bool(folder.stat().st_mode & 0o222)


def _unwritable(folder: Path, error: OSError) -> DatasetError:
    reason = error.strerror or str(error)
    return DatasetError(f"{folder}: cannot be written: {reason}; set GNNBENCH_CACHE to another folder")
