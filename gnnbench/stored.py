"""Results of every kind, read back from disk: they are told apart by the names in their JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gnnbench import __version__, comparison, kinds
from gnnbench.comparison.record import Comparison
from gnnbench.errors import ConfigError
from gnnbench.report.page import Stored
from gnnbench.results.schema import SCHEMA_VERSION


def load(path: Path) -> Stored:
    """Load what a verb wrote: the folder of its results or the JSON itself; with the epochs of every round.

    Raises:
        ConfigError: there is no such file, it is not a result, or it is one of another schema.
    """
    file = _file(path)
    kind, loaded = record(file)
    names = [row.backend for row in loaded.rows if row.epoch_s] if isinstance(loaded, Comparison) else []
    safe = [name for name in names if not {"/", "\\"} & {*name}]
    rounds = {name: comparison.stored(file.parent, name)[: loaded.rounds] for name in safe}
    return Stored(kind, loaded, file, {name: results for name, results in rounds.items() if results})


def record(file: Path) -> tuple[str, Any]:
    """Load the JSON of a result, and the name of its kind; raises as `load` does."""
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: is not JSON: {error}") from None
    known = kinds.known().items() if isinstance(raw, dict) else ()
    kind, schema = next(((name, each) for name, each in known if each.mark in raw), ("", None))
    if schema is None:
        raise ConfigError(
            f"{file}: is not a result of train, compare, infer, bench, profile, suite, tune, reproduce or sweep; "
            "give the folder or the JSON that one of them wrote"
        )
    if (version := raw.get("schema_version", SCHEMA_VERSION)) != SCHEMA_VERSION:
        raise ConfigError(
            f"{file}: has schema {version!r}, and gnnbench {__version__} reads schema {SCHEMA_VERSION}; "
            f"{_remedy(raw)}"
        )
    try:
        result = schema.model_validate(raw)
        result._path = file
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or kind
        raise ConfigError(f"{file}: {key}: {first['msg'].lower()}; {_remedy(raw)}") from None
    return kind, result


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    names = sorted({kind.file for kind in kinds.known().values()} - {""})
    if present := [path / name for name in names if (path / name).exists()]:
        return present[0]
    raise ConfigError(f"{path}: holds none of {', '.join(names)}; give the folder of a run or its JSON")


def _remedy(raw: dict[str, Any]) -> str:
    """Say what to do with a file that this version cannot open, though it may have written it."""
    environment = raw.get("environment")
    packages = environment.get("packages") if isinstance(environment, dict) else None
    wrote = packages.get("gnnbench") if isinstance(packages, dict) else None
    if wrote == __version__:
        return "it was changed since it was written: restore it, or measure again"
    return f"open it with gnnbench {wrote or 'of the version that wrote it'}, or measure again"
