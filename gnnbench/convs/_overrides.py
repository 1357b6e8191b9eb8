"""Code that programs put in the place of PyG's own, under any name that a call of a conv looks up.

PyG looks them up in the instance, in its class, and in the modules that the class and its aggregation come from.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from operator import attrgetter, itemgetter
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch_geometric.nn.aggr.base as aggregation
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import Aggregation

METHODS = (
    *("message", "aggregate", "update", "message_and_aggregate", "edge_update"),
    *("_check_input", "_set_size", "_index_select", "_index_select_safe", "_lift"),
)
COMPILED = ("propagate", "collect", "edge_updater", "edge_collect")  # by PyG, for every class anew
SHADOWED = (*METHODS, *COMPILED, "aggr_module")  # by an attribute of the instance
STAND_INS: dict[Any, Any] = {}  # ours -> the function of PyG that it computes the same as

_methods = attrgetter(*METHODS)


def overridden(conv: MessagePassing) -> list[str]:
    """Names of the methods and functions of a conv that are not, or no longer, PyG's own."""
    kind: Any = type(conv)
    pyg, own, names = pyg_class(conv), vars(conv), []
    if not own.keys().isdisjoint(SHADOWED):
        names += [name for name in SHADOWED if name in own and not _set_by_pyg(conv, name)]
    if (methods := _methods(kind)) != (pygs := _pygs_methods(pyg)):
        names += [name for name, now, its in zip(METHODS, methods, pygs, strict=True) if now is not its]
    names += _recompiled(kind, *[getattr(kind, name, None) for name in COMPILED])
    for lookups in _lookups(pyg):
        names += lookups.replaced()
    return names


def lookups(kind: Any) -> list[tuple[Any, tuple[str, ...]]]:
    """Return where `overridden` looks up names for a class: it, and globals of modules, each with the names."""
    return [(kind, METHODS + COMPILED), *((each.namespace, (*each.names,)) for each in _lookups(_pyg_class(kind)))]


def remember(pyg: type) -> None:
    """Look at a class of PyG before programs had much time to replace anything."""
    _ = _pygs_methods(pyg), _lookups(pyg)


def pyg_class(conv: Any) -> type:
    """The class of PyG that `conv` is an instance of, itself or through a subclass of a user."""
    kind: Any = type(conv)
    return _pyg_class(kind)


@functools.lru_cache
def _pyg_class(kind: type) -> type:
    return next(base for base in kind.__mro__ if base.__module__.startswith("torch_geometric."))


def is_from(function: Any, package: str) -> bool:
    """Return whether a function was written in `package`, whatever `functools.wraps` has it say."""
    return isinstance(function, FunctionType) and function.__globals__["__name__"].startswith(package)


def pygs_own(value: Any) -> Any:
    """PyG's own code in the place of `value`; None if a program put that there before we first looked."""
    value = STAND_INS.get(value, value) if isinstance(value, FunctionType) else value
    return value if is_from(value, "torch_geometric.") or isinstance(value, (type, ModuleType, str)) else None


class _Lookups:
    """The names that `readers` look up among the globals of their module."""

    def __init__(self, readers: Iterable[FunctionType], namespace: dict[str, Any]) -> None:
        mentioned = {name for reader in readers for name in _mentioned(reader.__code__)}
        self.names = [*sorted(mentioned & namespace.keys()), "__name__"]  # the last makes sure of a tuple
        self.namespace, self.get = namespace, itemgetter(*self.names)
        self.pygs = tuple(map(pygs_own, self.get(namespace)))
        self.known = self.pygs

    def replaced(self) -> list[str]:
        """Names of what is neither what PyG has there nor stands in for it."""
        now = self.get(self.namespace)
        if now == self.known:
            return []
        pairs = zip(self.names, now, self.pygs, strict=True)
        names = [name for name, value, pygs in pairs if value is not pygs and not _stands_in(value, pygs)]
        if not names:
            self.known = now
        return names


def _stands_in(value: Any, pygs: Any) -> bool:
    return pygs is not None and isinstance(value, FunctionType) and STAND_INS.get(value) is pygs


@functools.cache
def _pygs_methods(pyg: type) -> tuple[Any, ...]:
    return tuple(map(pygs_own, _methods(pyg)))


@functools.cache
def _lookups(pyg: type) -> list[_Lookups]:
    namespace = vars(sys.modules[pyg.__module__])
    functions = [
        function for function in (*vars(pyg).values(), *namespace.values()) if isinstance(function, FunctionType)
    ]
    readers = [STAND_INS.get(function, function) for function in functions if function.__globals__ is namespace]
    return [_Lookups(readers, namespace), _Lookups([Aggregation.reduce], vars(aggregation))]


def _mentioned(code: CodeType) -> set[str]:
    return {*code.co_names}.union(*(_mentioned(const) for const in code.co_consts if isinstance(const, CodeType)))


@functools.lru_cache(1024)
def _recompiled(kind: type, *functions: Any) -> list[str]:
    """Names of those of a class's functions that PyG neither wrote nor compiled for it."""
    return [
        name
        for name, function in zip(COMPILED, functions, strict=True)
        if function is not None and not is_compiled(kind, name, function)
    ]


def is_compiled(kind: type, name: str, function: Any) -> bool:
    """Return whether PyG wrote a function of a class, or compiled it for that class."""
    holder = next(base for base in kind.__mro__ if name in vars(base))
    written = holder is MessagePassing and is_from(function, "torch_geometric.")  # and could not be compiled
    return written or is_from(function, f"{holder.__module__}_{holder.__name__}_")


def _set_by_pyg(conv: Any, name: str) -> bool:
    """Return whether PyG itself put a method on the instance, to explain it or to decompose its layers."""
    kind, value = type(conv), vars(conv)[name]
    pygs = getattr(kind, name, conv), getattr(kind, f"_orig_{name}", conv)
    return getattr(value, "__self__", None) is conv and getattr(value, "__func__", None) in pygs
