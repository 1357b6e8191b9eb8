"""The file name is the registry: a source, model, conv, op, backend or paper is one module of its package."""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def names(package: str) -> list[str]:
    """Names of the modules in `gnnbench.<package>`, found without importing them or the package."""
    name = f"gnnbench.{package}"
    spec = importlib.util.find_spec(name)
    assert spec is not None
    paths = sys.modules[name].__path__ if name in sys.modules else spec.submodule_search_locations
    modules = pkgutil.iter_modules(paths)
    return sorted(info.name for info in modules if not info.name.startswith("_"))


def find(package: str, name: str) -> ModuleType:
    """The module `gnnbench.<package>.<name>`; the caller has checked that it is one of `names(package)`."""
    return importlib.import_module(f"gnnbench.{package}.{name}")


def merged(package: str, base: type[T]) -> type[T]:
    """A class with the methods of all classes in modules of `gnnbench.<package>` that derive from `base`."""
    modules = [find(package, name) for name in names(package)]
    kinds = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    derived = dict.fromkeys(kind for kind in kinds if issubclass(kind, base))
    last = [kind for kind in derived if not any(kind in other.__mro__[1:] for other in derived)]
    return type(base.__name__, tuple(last), {"__module__": base.__module__})
