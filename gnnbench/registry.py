"""The file name is the registry: a source, model, conv, backend or reproduction is one module of its package."""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
from types import ModuleType


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
