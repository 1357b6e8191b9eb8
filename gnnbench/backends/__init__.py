"""Backends by name: the modules of this package and the entry points of the group `gnnbench.backends`.

base         what a backend is
"""

from __future__ import annotations

import functools
import sys
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from gnnbench import registry
from gnnbench.errors import BackendUnavailable, ConfigError, UnsupportedOp, did_you_mean

if TYPE_CHECKING:
    import torch

    from gnnbench.backends.base import Backend, KernelBackend
    from gnnbench.config import BackendConfig, TrainConfig


def names() -> list[str]:
    """Every backend that can be asked for, available on this machine or not."""
    ours = _ours()
    return ours + sorted(_foreign().keys() - set(ours))


def backend_type(name: str) -> type[Backend]:
    """The class of a backend; another package cannot replace one of ours.

    Raises:
        ConfigError: there is none of this name.
        BackendUnavailable: the package that brings it cannot be imported or has no such class.
    """
    if name not in names():
        raise ConfigError(f"unknown backend {name!r}{did_you_mean(name, names())}")
    if name in _ours():
        return registry.find("backends", name.replace("-", "_")).Backend
    point = _foreign()[name]
    try:
        return _checked(point.load())
    except (ImportError, AttributeError, TypeError) as error:
        brought = f"{point.value!r} of package {point.dist.name if point.dist else 'unknown'!r}"
        raise BackendUnavailable(f"backend {name!r} cannot be loaded from {brought}: {error}") from error


def module_of(name: str) -> str:
    """The module that a backend of another package is in; empty for one of ours, and for an unknown name."""
    point = None if name in _ours() else _foreign().get(name)
    return point.module if point else ""


def with_kernels() -> dict[str, type[KernelBackend]]:
    """Find those that run convs on kernels, available or not, by name; without those that cannot be loaded."""
    from gnnbench.backends.base import KernelBackend

    kinds: dict[str, type[KernelBackend]] = {}
    for name in names():
        with suppress(BackendUnavailable):
            if issubclass(kind := backend_type(name), KernelBackend):
                kinds[name] = kind
    return kinds


def load(config: BackendConfig, train: TrainConfig | None = None) -> Backend:
    """The backend that `config` asks for, ready to prepare models, on the device that `train` asks for.

    Raises:
        ConfigError: unknown name, rewrites asked of a backend that runs PyG untouched, or a type of gathered
            features or a loader that it lacks.
        BackendUnavailable: this machine cannot run it, or not there.
        UnsupportedOp: it cannot run in the precision that `train` asks for.
    """
    kind = backend_type(config.name)
    asked = config.model_fields_set - {"name", "loader", "loader_workers"}
    if asked and not kind.takes_rewrites:
        raise ConfigError(
            f"backend.{min(asked)}: backend {config.name!r} takes no rewrites; leave it out of the configuration"
        )
    limits = ("gather", kind.gathers, "gathers in"), ("loader", kind.loaders, "takes batches by")
    for option, known, does in limits:
        if (found := getattr(config, option)) not in known:
            raise ConfigError(
                f"backend.{option}: backend {config.name!r} {does} {', '.join(known)} only, found {found!r}"
            )
    if config.loader_workers and config.loader == "ours":
        raise ConfigError(
            "backend.loader_workers: only loaders of PyG and DGL have workers; give backend.loader=pyg or dgl too"
        )
    if reasons := kind.unavailable():
        raise BackendUnavailable(f"backend {config.name!r} is unavailable: {'; '.join(reasons)}")
    result = kind(config)
    if train and kind.anywhere:
        result.home = _home(train)
    if train and train.precision == "bf16" and (reason := result.without_autocast):
        raise UnsupportedOp("train.precision=bf16", [reason])
    return result


def _home(train: TrainConfig) -> torch.device:
    """Where a backend runs that runs anywhere."""
    import torch

    has_gpu = torch.cuda.is_available()
    if train.device == "cuda" and not has_gpu:
        raise BackendUnavailable("train.device is cuda, but no CUDA device or driver was found; leave it out")
    on_gpu = train.device == "cuda" or (train.device == "auto" and train.cuda_graph and has_gpu)
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def _ours() -> list[str]:
    return [name.replace("_", "-") for name in registry.names("backends") if name != "base"]


def _checked(candidate: object) -> type[Backend]:
    from gnnbench.backends.base import Backend

    if isinstance(candidate, type) and issubclass(candidate, Backend):
        return candidate
    raise TypeError(f"{candidate!r} is not a subclass of gnnbench.backends.base.Backend")


def _foreign() -> dict[str, EntryPoint]:
    return _entry_points(tuple(sys.path))


@functools.cache
def _entry_points(path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Find those of the packages on `path`, which take 14 ms to look through."""
    return {point.name: point for point in entry_points(group="gnnbench.backends")}
