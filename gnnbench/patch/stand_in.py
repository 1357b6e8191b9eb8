"""Stand-ins for functions of PyG: they call ours or, where that is not exact, PyG's own."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from types import FunctionType
from typing import Any

import torch

from gnnbench.convs import _overrides
from gnnbench.errors import GraphError, UnsupportedOp
from gnnbench.patch import call
from gnnbench.patch.call import Declined, repeated
from gnnbench.patch.engine import Engine
from gnnbench.patch.status import TALLY


class StandIn:
    """A replacement for `original`, which classes or modules hold as their `attribute`.

    Attributes:
        name: what users call it.
        owner: the class that holds it, where no subclass looks for others.
        way: how it ran last, as the status says.
    """

    name: str
    owner: Any
    way = "kernels"
    attribute: str
    original: Any

    def enabled_by_default(self) -> bool:
        """Return whether it stands in where no names are given."""
        return True

    def owners(self) -> Iterable[Any]:
        """The objects that hold the stand-in or the original."""
        return [self.owner]

    def is_repeated(self, *args: Any, **kwargs: Any) -> bool:
        """Return whether a call may be one of two runs of a forward, which must run the same code."""
        return repeated(*args[:1])

    def accelerated(self, engine: Engine, *args: Any, **kwargs: Any) -> Any:
        """The result of a call, or Declined, UnsupportedOp or GraphError where PyG has to give it.

        Looks first at what rules out small batches, on which there is no time for more.
        """
        raise NotImplementedError

    def __call__(self, engine: Engine, *args: Any, **kwargs: Any) -> Any:
        try:
            out = self.accelerated(engine, *args, **kwargs)
        except (Declined, UnsupportedOp, GraphError) as error:
            reason = call.reason(error)
        else:
            TALLY.accelerated(self.name, self.way)
            return out
        return self.left(engine, reason, *args, **kwargs)

    def left(self, engine: Engine, reason: str, /, *args: Any, **kwargs: Any) -> Any:
        """The result of a call that is left to PyG, or UnsupportedOp where nothing may be."""
        TALLY.declined(self.name, reason)
        if engine.strict:
            raise UnsupportedOp(f"{self.name} with strict=True", [reason])
        return self.run_original(*args, **kwargs)

    def run_original(self, *args: Any, **kwargs: Any) -> Any:
        """Run PyG's own code."""
        return self.original(*args, **kwargs)


def disguised(function: Any, original: Any) -> Any:
    """A function, of no names but its own, that torch's compilers take for `original`.

    TorchScript reads the source of `__wrapped__`, and looks up its names among the globals of the function.
    """
    code = function.__code__.replace()  # of its own: torch.compile counts compilations by code, up to a limit
    with_globals = FunctionType(code, original.__globals__, closure=function.__closure__)
    _overrides.STAND_INS[with_globals] = original
    return functools.update_wrapper(with_globals, original)


def share_overloads(function: Any, other: Any) -> None:
    """Give a function the overloads that TorchScript compiled for another, and finds by their name only once."""
    compiled = torch.jit._state._jit_function_overload_caching
    if isinstance(other, FunctionType) and other in compiled:
        compiled[function] = compiled[other]
