"""Epochs of a run, told to a tracker of experiments between them and never while one is timed.

A tracker is a module that is called as its package. Its `Tracker(folder, name, config)` stands for a repeat of a
run: the folder and a name of it, and the complete configuration, flat: values by `section.key`. Its method
`log(values, epoch)` keeps values by name for an epoch, and `close()` sends what is left.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gnnbench import registry
from gnnbench.errors import ConfigError, did_you_mean
from gnnbench.results.schema import Evaluation, Result, Sample, flat
from gnnbench.training.run import Event, Hear


def check(names: Sequence[str]) -> None:
    """Raise ConfigError for a tracker that nobody knows or that is not installed."""
    known = registry.names("trackers")
    for name in names:
        if name not in known:
            raise ConfigError(f"--track: unknown tracker {name!r}{did_you_mean(name, known)}")
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"--track {name} needs the package {name}: pip install {name}")


@contextmanager
def following(names: Sequence[str], folder: Path, hear: Hear) -> Iterator[Hear]:
    """Let the block tell what happens in a run to `hear`, and its epochs to trackers, by their names in the JSON.

    The run goes on without a tracker that fails, which is told once as a message.
    """
    kinds: dict[str, Any] = {name: registry.find("trackers", name).Tracker for name in names}
    opened: dict[str, Any] = {}
    repeat = -1
    result: Result  # once something has happened

    def attempt(those: Iterable[str], work: Callable[[str], object]) -> None:
        for name in [*those]:
            try:
                work(name)
            except Exception as error:  # of a server or a disk, which must not end a run
                kinds.pop(name, None)
                opened.pop(name, None)
                message = f"{name} no longer tracks this run: {error}"
                hear(Event(kind="message", result=result, message=message))

    def close() -> None:
        attempt(opened, lambda name: opened.pop(name).close())

    def tell(event: Event) -> None:
        nonlocal repeat, result
        hear(event)
        result, sample = event.result, event.sample
        if sample is None:
            return
        if sample.repeat != repeat:
            close()
            repeat, config = sample.repeat, dict(flat(result.config))
            called = f"{folder.name}-{repeat}"
            attempt(kinds, lambda name: opened.update({name: kinds[name](folder, called, config)}))
        values = _values(sample, "samples") | _values(event.evaluation, "evaluations")
        attempt(opened, lambda name: opened[name].log(values, sample.epoch))

    try:
        yield tell
    finally:
        close()


def _values(record: Sample | Evaluation | None, section: str) -> dict[str, float]:
    """Return the numbers of a record by `section/name`."""
    fields = record.model_dump(exclude={"repeat", "epoch"}, exclude_none=True) if record else {}
    return {f"{section}/{name}": float(value) for name, value in fields.items()}
