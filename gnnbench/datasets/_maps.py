"""A graph as a folder of `.npy` files, which can be mapped into memory, and what tells whether they are whole.

gnnbench.json name, metric, and the type and shape of every array; written last
rowptr.npy    [N + 1] int64, where the in-edges of each node begin
col.npy       [E] int32, their sources, ascending for each node
x.npy         [N, F] float32
y.npy         [N] int64, or [N, T] float32
train_mask.npy, val_mask.npy, test_mask.npy    [N] bool
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import numpy as np
import torch
from pydantic import Field, ValidationError
from torch import Tensor

from gnnbench import __version__
from gnnbench.datasets import NodeDataset, _cache, _metrics, one_of
from gnnbench.datasets._kinds import MASKS
from gnnbench.errors import DatasetError
from gnnbench.graph import CSRBuilder
from gnnbench.results.schema import Record

R = TypeVar("R", bound=Record)
HEADER = "gnnbench.json"
DTYPES = {"rowptr": ("int64",), "col": ("int32",), "x": ("float32",), "y": ("int64", "float32")}
DTYPES |= dict.fromkeys(MASKS, ("bool",))
CHUNK = 1 << 22  # numbers that are read or written at once


class Array(Record):
    """One file, which holds `bytes` of numbers behind its header."""

    dtype: str
    shape: list[int]
    bytes: int

    @classmethod
    def of(cls, array: np.ndarray) -> Array:
        return cls(dtype=str(array.dtype), shape=[*array.shape], bytes=array.nbytes)


class Facts(Record):
    """Facts of a graph that stand beside its arrays."""

    schema_version: Literal[1] = 1
    gnnbench: str = Field(__version__, description="version that wrote it")
    name: str
    made_up: list[str]
    notes: list[str]
    num_classes: int
    metric: Annotated[str, one_of("metric", _metrics.NAMES)]


class Header(Facts):
    """Header of a folder of arrays: what they are, and of what graph."""

    arrays: dict[str, Array]


def write(dataset: NodeDataset, folder: Path, layout: CSRBuilder | None = None) -> Header:
    """Write a dataset that is fit for training, its edges sorted by `layout`, into a folder: whole or not at all.

    Arrays that are memory maps already, such as features of synthetic graphs, are copied piece by piece.

    Raises:
        DatasetError: the folder exists and is not empty, cannot be written, or its disk is full.
    """
    check_new(folder)
    graph = dataset.graph(torch.device("cpu"), layout)
    arrays = {"rowptr": graph.rowptr, "col": graph.col}
    arrays |= {name: getattr(dataset, name) for name in DTYPES if name not in arrays}
    with new_folder(folder) as temporary:
        header = Header(**dataset.facts, arrays=save(temporary, arrays))
        (temporary / HEADER).write_text(header.model_dump_json(indent=1), encoding="utf-8")
    return header


def check_new(folder: Path) -> None:
    """Raises DatasetError where there is something already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DatasetError(f"{folder.absolute()}: exists and is not an empty folder; give another --out")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `folder` at the end of the block: whole or not at all.

    Raises:
        DatasetError: it exists and is not empty, cannot be written, or its disk is full.
    """
    check_new(folder)
    folder = folder.absolute()
    try:
        with _cache.beside(folder) as temporary:
            yield temporary
            temporary.replace(folder)
    except OSError as error:
        raise DatasetError(f"{folder}: cannot be written: {error.strerror}; give another --out") from None


@contextmanager
def remedy(again: str) -> Iterator[None]:
    """Let errors of what is read in the block end with `again`, what the user can do."""
    try:
        yield
    except DatasetError as error:
        raise DatasetError(f"{error}; {again}") from None


def read_record(kind: type[R], path: Path) -> R:
    """Raises DatasetError where `path` is missing or no JSON of this kind."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DatasetError(f"{path}: {where + ': ' if where else ''}{first['msg'].lower()}") from None


def open_arrays(
    folder: Path,
    arrays: Mapping[str, Array],
    dtypes: Mapping[str, Sequence[str]] = DTYPES,
    header: Path | None = None,
) -> dict[str, Tensor]:
    """The arrays as read-only memory maps, with types, shapes and sizes as their header says.

    Args:
        dtypes: which arrays there must be.
        header: the file that `arrays` stand in, if not the folder's.

    Raises:
        DatasetError: a file is missing, truncated or another one.
    """
    header = header or folder / HEADER
    maps: dict[str, Tensor] = {}
    for name, allowed in dtypes.items():
        path, array = folder / f"{name}.npy", arrays.get(name)
        if array is None or array.dtype not in allowed:
            held = "not named" if array is None else f"{array.dtype}, but must be {' or '.join(allowed)}"
            raise DatasetError(f"{header}: {name} is {held}")
        try:
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:  # a ValueError where the file is shorter than its own header says
            reason = getattr(error, "strerror", None) or f"truncated or no array ({error})"
            raise DatasetError(f"{path}: cannot be mapped: {reason}") from None
        if Array.of(mapped) != array:
            raise DatasetError(
                f"{path}: holds {mapped.dtype} of shape {[*mapped.shape]}, but {header.name} says {array.dtype} "
                f"of shape {array.shape}"
            )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*not writable")  # as it is meant to be
            maps[name] = torch.from_numpy(mapped)
    return maps


def check_shapes(folder: Path, maps: Mapping[str, Tensor], lengths: Mapping[str, int]) -> None:
    """Raises DatasetError where arrays have not as many rows as they must."""
    for name, values in maps.items():
        dims = {"x": (2,), "y": (1, 2)}.get(name, (1,))
        if values.dim() not in dims or len(values) != lengths[name]:
            raise DatasetError(
                f"{folder / name}.npy: has shape {[*values.shape]}, but must have {lengths[name]} rows"
            )


def check_rows(folder: Path, rowptr: Tensor, col: Tensor, num_cols: int | None = None) -> None:
    """Read both once, in order, and piece by piece.

    Args:
        num_cols: what `col` stays below, if not the number of rows.

    Raises:
        DatasetError: rows that fall or end elsewhere than `col`, or an edge that is out of range or out of order.
    """
    starts, values = rowptr.numpy(), col.numpy()
    num_rows, edges = len(starts) - 1, len(values)
    num_cols = num_rows if num_cols is None else num_cols
    if starts[0] != 0 or starts[-1] != edges:
        raise DatasetError(
            f"{folder / 'rowptr.npy'}: runs from {starts[0]} to {starts[-1]}, but must run from 0 to {edges}, the "
            f"number of edges"
        )
    for begin, end in pieces(num_rows):
        if (falls := starts[begin + 1 : end + 1] < starts[begin:end]).any():
            raise DatasetError(f"{folder / 'rowptr.npy'}: falls at node {begin + falls.argmax()}")
    for begin, end in pieces(edges):
        piece = values[begin : end + 1]
        if (wrong := (piece < 0) | (piece >= num_cols)).any():
            place = wrong.argmax()
            raise DatasetError(
                f"{folder / 'col.npy'}: edge {begin + place} comes from node {piece[place]}, but there are nodes "
                f"0 to {num_cols - 1}"
            )
        lower = begin + 1 + np.flatnonzero(piece[1:] < piece[:-1])
        within = lower[starts[np.searchsorted(starts, lower)] != lower]  # of others, which begin a row, any may be
        if len(within):
            raise DatasetError(f"{folder / 'col.npy'}: falls after edge {within[0] - 1}, within a row")


def pieces(size: int) -> Iterator[tuple[int, int]]:
    return ((begin, min(begin + CHUNK, size)) for begin in range(0, size, CHUNK))


def save(folder: Path, arrays: Mapping[str, Tensor]) -> dict[str, Array]:
    """Write arrays piece by piece to files by their names, and return their types and shapes."""
    for name, values in arrays.items():
        rows = max(1, CHUNK // max(1, values[:1].numel()))
        chunks = (values[begin : begin + rows].numpy() for begin in range(0, len(values), rows))
        _cache.save(folder / f"{name}.npy", tuple(values.shape), values.numpy().dtype, chunks)
    return {name: Array.of(values.numpy()) for name, values in arrays.items()}
