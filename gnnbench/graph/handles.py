"""Handles: names by which torch's custom ops, whose arguments must be plain values, find Python objects.

A handle is text, for torch.compile takes a number that differs between calls for a variable.
"""

from __future__ import annotations

import itertools
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from gnnbench.errors import GnnbenchError

H = TypeVar("H", bound="Handled")

_numbers = itertools.count(1)
_living: WeakValueDictionary[str, Handled] = WeakValueDictionary()


class Handled:
    """An object with a name, `handle`, that no other object of this process ever has; copies get their own."""

    handle: str

    def __new__(cls: type[H], *args: Any, **kwargs: Any) -> H:
        self = super().__new__(cls)
        self.handle = str(next(_numbers))
        _living[self.handle] = self
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "handle"}


def find(handle: str) -> Any:
    """The object with this handle, which the registry does not keep alive.

    Raises:
        GnnbenchError: it is gone, as when a compiled function outlives the Graph it was compiled for.
    """
    result = _living.get(handle)
    if result is None:
        raise GnnbenchError(
            f"the Graph or Kernels with handle {handle} no longer exists; keep the Graph and the model alive "
            "until all of forward and backward has run"
        )
    return result
