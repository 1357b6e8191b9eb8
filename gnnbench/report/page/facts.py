"""The machine and the configuration of a result, as rows and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from gnnbench import units

NOTHING = "–"


def sheet(environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """One row per fact, as MLPerf's descriptions of systems; whatever keys the result has."""
    for name, value in environment.items():
        if isinstance(value, Mapping):
            for key, fact in value.items():
                yield f"{_words(name)}: {_words(key)}", _text(fact, key)
        else:
            yield _words(name), _text(value, name)


def yaml_of(config: Mapping[str, Any]) -> str:
    """The text of a configuration file; empty where there is none."""
    return yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True) if config else ""


def _words(key: str) -> str:
    return str(key).replace("_", " ").removesuffix(" bytes")


def _text(value: Any, key: str = "") -> str:
    match value:
        case None:
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case int() if key.endswith("bytes"):
            return units.size(value)
        case float():
            return f"{value:.2f}"
        case Mapping():
            return (
                ", ".join(
                    f"{_words(name)} {_text(part, name if 'bytes' in name else key)}"
                    for name, part in value.items()
                )
                or NOTHING
            )
        case list():
            return ", ".join(_text(part, key) for part in value) or NOTHING
    return str(value)
