"""Files of other people's loaders, fetched whole and read without running code; and the cache of what is made."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import logging
import os
import pickle
import random
import re
import secrets
import shutil
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest import mock

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gnnbench.errors import DatasetError, GnnbenchError
from gnnbench.results import files

T = TypeVar("T")
CONNECT_TIMEOUT = 20.0  # seconds without an answer

# What pickles of arrays are made of, in the spellings of all versions of Python, NumPy and SciPy. Names, not
# modules: NumPy has functions that read and write files.
PLAIN = re.compile(
    r"""(builtins|__builtin__)\.(bool|bytearray|bytes|complex|dict|float|frozenset|int|list|long|object|set|slice)
    | (builtins|__builtin__)\.(range|str|tuple|unicode|xrange)
    | collections\.(OrderedDict|defaultdict)
    | (copyreg|copy_reg)\._reconstructor
    | _codecs\.encode
    | numpy\.(dtype|ndarray)
    | numpy\._?core\.(multiarray\.(_reconstruct|scalar)|numeric\._frombuffer)
    | scipy\.sparse\._?(bsr|coo|csc|csr|dia|dok|lil)\.(bsr|coo|csc|csr|dia|dok|lil)_(array|matrix)
    | torch\._utils\._rebuild_tensor(_v2)?""",
    re.VERBOSE,
)
REFUSED = re.compile(r"GLOBAL (\S+) (?:was not an allowed global|whose module)")  # in the errors of `torch.load`

_alone = threading.RLock()  # the replacements below are seen by the whole process
_reader: int | None = None  # the thread that reads; others unpickle as ever


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
        with plain_only():
            yield
    except GnnbenchError:
        raise
    except MemoryError as error:
        raise DatasetError(f"{what} needs more memory to be read than there is: {error}") from error
    except ImportError as error:
        raise DatasetError(f"{what} needs a package that is not installed: {error}") from error
    except Exception as error:
        if found := [each for each in _chain(error) if isinstance(each, Forbidden)]:
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


class Place(NamedTuple):
    """Where the raw files of a dataset are expected."""

    folder: Path
    files: list[Path]  # without which it cannot be read; empty where its loader does not say

    @property
    def missing(self) -> list[Path]:
        if self.files:
            return [file for file in self.files if not file.exists()]
        return [] if self.folder.is_dir() and any(self.folder.iterdir()) else [self.folder]


def found(
    what: str, places: Sequence[Place], target: Place, stand_in: str, download: Callable[[Path], Path]
) -> Place:
    """The first of `places` where nothing is missing; else `target`, filled by `download`.

    Args:
        download: fills a temporary folder, and returns the one whose content belongs there.

    Raises:
        DatasetError: the download failed; says what is missing, where it goes and what stands in.
    """
    from rich.console import Console

    if whole := next((place for place in places if not place.missing), None):
        return whole
    nearest = min(places, key=lambda place: (len(place.missing), not place.folder.is_dir()))
    root = nearest.folder.parent
    missing = f"no {', '.join(os.path.relpath(path, root) for path in nearest.missing)} in {root}"
    terminal = Console(file=sys.stderr)  # the one of now, before `quiet`
    patience = socket.getdefaulttimeout()
    try:
        with beside(target.folder) as temporary:
            socket.setdefaulttimeout(CONNECT_TIMEOUT)
            with terminal.status(f"downloading {what}"), quiet(), plain_only():
                content = download(temporary)
            target.folder.mkdir(exist_ok=True)
            for file in content.iterdir():
                file.replace(target.folder / file.name)
    except Exception as error:
        reason = str(error).strip().splitlines()
        raise DatasetError(
            f"{what} is not on disk ({missing}) and downloading it failed "
            f"({reason[0] if reason else type(error).__name__}); "
            f"put its files into {target.folder}, choose another --data-root, or use --dataset {stand_in}"
        ) from error
    finally:
        socket.setdefaulttimeout(patience)
    if target.missing:
        raise DatasetError(f"{what}: the download left out {', '.join(map(str, target.missing))}")
    return target


def writable_root(raw: Path, cache: Path) -> Path:
    """Where downloads go: the data root, or the cache where that is not meant to be written, even by root."""
    folder = nearest(raw)
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


@contextlib.contextmanager
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


class Forbidden(Exception):
    """A file names an object that is no array; carries its dotted name."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = f"{module}.{name}"
        if _reader != threading.get_ident() or PLAIN.fullmatch(found):
            return super().find_class(module, name)
        if found == "torch.storage._load_from_bytes":  # which would unpickle anything
            return _tensors
        raise Forbidden(found)


def _load(file: Any, **options: Any) -> Any:
    return _Unpickler(file, **options).load()


def _loads(content: Any, /, **options: Any) -> Any:
    return _load(io.BytesIO(content), **options)


def _tensors(content: bytes) -> Any:
    import torch

    return torch.load(io.BytesIO(content))  # as replaced below


@contextlib.contextmanager
def plain_only() -> Iterator[None]:
    """Restrict `pickle`, `numpy.load` (which calls it) and `torch.load` in this thread to `PLAIN` and tensors.

    Raises:
        Forbidden: what is read names another object; nothing of it was imported or called.
    """
    global _reader
    import torch

    load, reconstruct = torch.load, np.zeros(0).__reduce__()[0]
    arrays = [reconstruct, np.ndarray, np.dtype, *(getattr(np.dtypes, each) for each in np.dtypes.__all__)]
    older: list[Any] = [(reconstruct, "numpy.core.multiarray._reconstruct")]

    def load_tensors(*args: Any, **options: Any) -> Any:
        if _reader != threading.get_ident():
            return load(*args, **options)
        try:
            return load(*args, **{**options, "weights_only": True})
        except pickle.UnpicklingError as error:
            if refused := REFUSED.search(str(error)):
                raise Forbidden(refused[1]) from None
            raise

    with (
        _alone,
        torch.serialization.safe_globals([*arrays, *older]),
        mock.patch.multiple(pickle, load=_load, loads=_loads, Unpickler=_Unpickler),
        mock.patch.object(torch, "load", load_tensors),
    ):
        before, _reader = _reader, threading.get_ident()
        try:
            yield
        finally:
            _reader = before
