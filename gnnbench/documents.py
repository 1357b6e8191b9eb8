"""Reads YAML, of files and of values: a key that stands twice is an error, as the first would be lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gnnbench.errors import ConfigError


class _UniqueKeys(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            line = key.start_mark.line + 1
            if first := lines.get(key.value):
                raise _Twice(f"the key '{key.value}' stands in line {first} and again in line {line}; keep one")
            lines[key.value] = line
        return super().construct_mapping(node, deep)


class _Twice(yaml.YAMLError):
    """A key stands twice in one mapping."""


def read(path: Path, allowed: list[str]) -> dict[str, Any]:
    """Read the keys of a YAML file and their values; `allowed` are named where it has none.

    Raises:
        ConfigError: it cannot be read, is not YAML, has no keys, or one of them twice.
    """
    try:
        raw = _parsed(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not a text file in UTF-8") from None
    except _Twice as error:
        raise ConfigError(f"{path}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "unreadable"
        raise ConfigError(f"{path}{line}: is not valid YAML: {problem}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: holds no sections; allowed: {', '.join(allowed)}")
    return raw


def value(text: str, where: str) -> Any:
    """Read a value given on the command line; `where` names its option in the error."""
    try:
        return _parsed(text)
    except yaml.YAMLError:
        raise ConfigError(f"{where}: the value {text!r} is not valid YAML") from None


def _parsed(text: str) -> Any:
    return yaml.load(text, _UniqueKeys)  # noqa: S506, as it is a SafeLoader
