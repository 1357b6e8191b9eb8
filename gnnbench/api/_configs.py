"""Where a configuration comes from: a file, its name, its sections or the demo; and what overrides its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnbench.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from gnnbench.config import Run

Source = str | Path | Mapping[str, Any] | None
Overrides = Mapping[str, Any] | Sequence[str] | None

SHIPPED = Path(__file__).parents[1] / "configs"
DEMO = SHIPPED / "demo.yaml"
OPTIONS = {"train.epochs": "--epochs", "train.workers": "--workers", "measure.memory_limit": "--memory-limit"}
# Where a graph has none: ops do not look at them.
BARE = {"dataset.random_features": 1, "dataset.random_labels": 2}
FOLDERS = (Path("configs"), SHIPPED)  # of configurations by their names


def load(
    source: Source,
    overrides: Overrides = None,
    dataset: str = "",
    epochs: int | None = None,
    memory_limit: str = "",
    backend: str = "",
    workers: int | None = None,
) -> Run:
    """The configuration of a run.

    Args:
        source: a YAML file, the name of one in `configs`, or a mapping of its sections, in which a key with a dot
            counts as an override; None for the demo.
        overrides: values by key, or `"section.key=value"` each.
        dataset, epochs, memory_limit, backend, workers: override theirs where given.

    Raises:
        ConfigError: with every problem, one sentence each.
    """
    from gnnbench import config, datasets

    within: dict[str, Any] = {}
    if isinstance(source, Mapping):
        within = {key: value for key, value in source.items() if "." in key}
        source = {key: value for key, value in source.items() if key not in within}
    options = dict(zip(OPTIONS, (epochs, workers, memory_limit or None), strict=True))
    short = {key: value for key, value in options.items() if value is not None}
    return config.load(
        _found(source),
        within | config.by_key(overrides or ()) | short,
        dataset=datasets.parse(dataset) if dataset else None,
        backend=backend or None,
        names={key: f"config: {key}" for key in within} | {key: OPTIONS[key] for key in short},
        where="" if source else "the default configuration",
    )


def stem(source: Source) -> str:
    """The name of a configuration, for folders of its results."""
    return "run" if isinstance(source, Mapping) else Path(source or DEMO).stem


def names(given: str | Sequence[str]) -> list[str]:
    """`"pyg,isplib"` or names one by one, each once."""
    parts = given.split(",") if isinstance(given, str) else given
    result = [name.strip() for name in parts if name.strip()]
    if twice := next((name for name in result if result.count(name) > 1), None):
        raise ConfigError(f"{','.join(result)}: {twice} is given twice; name each once")
    return result


def _found(source: Source) -> Path | Mapping[str, Any]:
    """Find what `config.load` reads."""
    if source is None or isinstance(source, Mapping):
        return DEMO if source is None else source
    path = Path(source)
    if path.suffix or len(path.parts) != 1 or path.exists():
        return path
    known = {file.stem: file for folder in reversed(FOLDERS) for file in folder.glob("*.yaml")}
    if path.name not in known:
        hint = did_you_mean(path.name, known)
        raise ConfigError(f"{path}: is neither a file nor the name of a configuration{hint}")
    return known[path.name]
