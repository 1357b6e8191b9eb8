"""Let other people's loaders unpickle arrays and plain containers, and nothing that could run code."""

from __future__ import annotations

import contextlib
import io
import pickle
import re
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

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
    import numpy as np
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
