"""A graph that stays on disk: the folder that `gnnbench datasets convert` wrote, as read-only memory maps.

gnnbench.json name, metric, and the type and shape of every array; written last
rowptr.npy    [N + 1] int64, where the in-edges of each node begin
col.npy       [E] int32, their sources, ascending for each node
x.npy         [N, F] float32
y.npy         [N] int64, or [N, T] float32
train_mask.npy, val_mask.npy, test_mask.npy    [N] bool
"""

from __future__ import annotations

import os.path
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Field, ValidationError

from gnnbench import __version__
from gnnbench.config import DatasetConfig
from gnnbench.datasets import MappedDataset, NodeDataset, Offer, Roots, _disk, _metrics, one_of
from gnnbench.datasets._kinds import FACTS, MASKS
from gnnbench.errors import ConfigError, DatasetError
from gnnbench.results.schema import Record, SyntheticParts

if TYPE_CHECKING:
    from torch import Tensor

    from gnnbench.graph import CSRBuilder

BEFORE = ("to_undirected", "reorder", "normalize_features")  # what would copy whole arrays
AGAIN = "write the folder anew with `gnnbench datasets convert`"
R = TypeVar("R", bound=Record)
HEADER = "gnnbench.json"
DTYPES = {"rowptr": ("int64",), "col": ("int32",), "x": ("float32",), "y": ("int64", "float32")}
DTYPES |= dict.fromkeys(MASKS, ("bool",))
CHUNK = 1 << 22  # numbers that are read or written at once


class Config(DatasetConfig):
    """Where the folder is, relative to the working folder or the data root."""

    source: str = "mapped"
    path: Path = Field(description="a folder that `gnnbench datasets convert` wrote")


def parse(spec: str) -> dict[str, Any] | None:
    """A folder that holds such arrays."""
    return {"path": spec} if os.path.isfile(os.path.join(spec, HEADER)) else None


def listing(where: Roots) -> list[Offer]:
    """List those in the data root."""
    offers = []
    for path in sorted(where.raw.glob(f"*/{HEADER}")):
        with suppress(DatasetError):  # of one that is broken, or another program's
            arrays = read_record(Header, path).arrays
            nodes, edges = (arrays[name].shape[0] if name in arrays else None for name in ("x", "col"))
            offers.append(Offer(str(path.parent), nodes, edges, path.parent))
    return offers


def load(config: Config, where: Roots) -> MappedDataset:
    """Map the arrays; `rowptr` and `col` are read once to check them, and not again until they change.

    Raises:
        ConfigError: an option that has to be given to the conversion.
        DatasetError: a file is missing, truncated or no part of a graph.
    """
    for name in BEFORE:
        if getattr(config, name) != DatasetConfig.model_fields[name].default:
            raise ConfigError(
                f"dataset.{name}: {config.path} is mapped as it is; give the option to `gnnbench datasets convert`"
            )
    folder = _disk.located(config.path, where.raw, "folder", Path.is_dir)
    with remedy(AGAIN):
        header = read_record(Header, folder / HEADER)
        maps = open_arrays(folder, header.arrays)
        nodes, edges = len(maps["x"]), len(maps["col"])
        check_shapes(folder, maps, {**dict.fromkeys(maps, nodes), "rowptr": nodes + 1, "col": edges})
    rowptr, col = maps.pop("rowptr"), maps.pop("col")

    def check(_: Path) -> None:
        with remedy(AGAIN):
            check_rows(folder, rowptr, col)

    key = _disk.fingerprint([folder / "rowptr.npy", folder / "col.npy"])
    _disk.built(where.cache / "mapped" / key, check)
    return MappedDataset(rowptr, col, **maps, **header.model_dump(include={*FACTS}))


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
    synthetic_parts: SyntheticParts
    notes: list[str]
    num_classes: int
    metric: Annotated[str, one_of("metric", _metrics.NAMES)]


class Header(Facts):
    """Header of a folder of arrays: what they are, and of what graph."""

    arrays: dict[str, Array]


def write(dataset: NodeDataset, folder: Path, layout: CSRBuilder | None = None) -> Header:
    """Write a dataset that is fit for training, its edges sorted by `layout`, into a folder: whole or not at all.

    Arrays that are memory maps already, such as features of synthetic graphs, are copied piece by piece.
    """
    import torch

    with new_folder(folder) as temporary:
        graph = dataset.graph(torch.device("cpu"), layout)
        arrays = {"rowptr": graph.rowptr, "col": graph.col}
        arrays |= {name: getattr(dataset, name) for name in DTYPES if name not in arrays}
        header = Header(**dataset.facts, arrays=save(temporary, arrays))
        (temporary / HEADER).write_text(header.model_dump_json(indent=1), encoding="utf-8")
    return header


def check_new(folder: Path) -> None:
    """Raises DatasetError where there is something already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DatasetError(f"{folder.absolute()}: exists and is not an empty folder; give another --out")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `folder` at the end of the block: whole or not at all."""
    check_new(folder)
    folder = folder.absolute()
    try:
        with _disk.beside(folder) as temporary:
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
    """
    import torch

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
        _disk.save(folder / f"{name}.npy", tuple(values.shape), values.numpy().dtype, chunks)
    return {name: Array.of(values.numpy()) for name, values in arrays.items()}
