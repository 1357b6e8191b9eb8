"""Looks: convs that were looked at and found fit, until something in them or around them is another."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from torch.nn import Module

from gnnbench.backends.isplib import _compiled
from gnnbench.convs import _checks

native = _compiled.load("state")


class _Look(NamedTuple):
    call: Any
    state: Any
    rewrites: frozenset[str]


class Looks:
    """The last call of each conv that ran on our kernels, and the rewrites that applied.

    To see that nothing changed is much faster than to look at everything again. A conv is forgotten with the
    program's last reference to it. Without compiled modules, nothing is remembered.
    """

    def __init__(self) -> None:
        self._last: WeakKeyDictionary[Module, _Look] = WeakKeyDictionary()

    def clear(self) -> None:
        """Forget all convs."""
        self._last.clear()

    def find(self, conv: Any, call: Any) -> frozenset[str] | None:
        """Return the rewrites of a conv, as they were at an equal `call`; None where it has to be looked at."""
        look = self._last.get(conv)
        if look is None or look.call != call or not look.state.holds(conv):
            return None
        return look.rewrites

    def keep(self, conv: Any, call: Any, rewrites: frozenset[str]) -> None:
        """Remember a conv that was looked at for `call`, of sizes and of what else decides."""
        if native is not None:
            self._last[conv] = _Look(call, native.State(conv, _checks.around(conv)), rewrites)
