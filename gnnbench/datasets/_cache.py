"""The cache of processed files: a folder is there whole or not at all, and is renamed when its origin changes."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

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
    is_made = False
    try:
        with beside(folder) as temporary:
            is_made = True
            build(temporary)
            temporary.replace(folder)
    except OSError as error:
        if folder.is_dir():  # another process was faster
            return folder
        if not is_made or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise DatasetError(
                f"{folder.parent}: cannot be written: {error.strerror or error}; set GNNBENCH_CACHE to another "
                "folder"
            ) from None
        raise
    return folder


@contextmanager
def beside(folder: Path) -> Iterator[Path]:
    """A folder to fill and rename to `folder`, removed if it was not; so is what killed processes left of any."""
    temporary = folder.with_name(f"{files.temporary_name(folder.name)}-{secrets.token_hex(4)}")
    temporary.mkdir(parents=True)
    try:
        files.remove_left(folder)
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def save(path: Path, shape: tuple[int, ...], dtype: DTypeLike, chunks: Iterable[NDArray]) -> None:
    """Write an array piece by piece; a full disk is an OSError here, but a crash through a memory map."""
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for chunk in chunks:
            file.write(np.ascontiguousarray(chunk, dtype).data)
        file.flush()
        os.fsync(file.fileno())


def nearest(folder: Path) -> Path:
    """`folder`, or the nearest parent of it that exists."""
    return next(each for each in (folder, *folder.parents) if each.exists())
