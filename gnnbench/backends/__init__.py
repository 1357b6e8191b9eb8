"""Backends by name: the modules of this package and the entry points of the group `gnnbench.backends`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from gnnbench import registry
from gnnbench.errors import BackendUnavailable, ConfigError, did_you_mean

if TYPE_CHECKING:
    from gnnbench.backends.base import Backend
    from gnnbench.config import BackendConfig


def names() -> list[str]:
    """Every backend that can be asked for, available on this machine or not."""
    ours = [name.replace("_", "-") for name in registry.names("backends") if name != "base"]
    return ours + sorted(_foreign().keys() - set(ours))


def backend_type(name: str) -> type[Backend]:
    """The class of a backend.

    Raises:
        ConfigError: there is none of this name.
        BackendUnavailable: the package that brings it cannot be imported.
    """
    if name not in names():
        raise ConfigError(f"unknown backend {name!r}{did_you_mean(name, names())}")
    point = _foreign().get(name)
    try:
        found: type[Backend] = (
            point.load() if point else registry.find("backends", name.replace("-", "_")).Backend
        )
    except ImportError as error:
        raise BackendUnavailable(f"backend {name!r} cannot be imported: {error}") from error
    return found


def load(config: BackendConfig) -> Backend:
    """The backend that `config` asks for, ready to prepare models.

    Raises:
        ConfigError: unknown name, or rewrites asked of a backend that runs PyG untouched.
        BackendUnavailable: this machine cannot run it.
    """
    kind = backend_type(config.name)
    asked = config.model_fields_set - {"name"}
    if asked and not kind.takes_rewrites:
        raise ConfigError(
            f"backend.{min(asked)}: backend {config.name!r} runs PyG untouched and takes no rewrites"
        )
    if reasons := kind.unavailable():
        raise BackendUnavailable(f"backend {config.name!r} is unavailable: {'; '.join(reasons)}")
    return kind(config)


def _foreign() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group="gnnbench.backends")}
