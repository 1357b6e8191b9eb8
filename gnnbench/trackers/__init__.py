"""Epochs of a run, told to a tracker of experiments between them and never while one is timed.

A tracker is a module that is called as its package, with a class `Tracker`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from gnnbench import registry
from gnnbench.errors import ConfigError, did_you_mean
from gnnbench.results.schema import Evaluation, Result, Sample, flat
from gnnbench.training.run import Event

Hear = Callable[[Event], None]


class Tracker(Protocol):
    """One repeat of a run in a tracker of experiments.

    Args:
        folder: of the run.
        name: of the repeat.
        config: the complete configuration, flat: values by `section.key`.
    """

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any]) -> None: ...

    def log(self, values: Mapping[str, float], epoch: int) -> None:
        """Keep values by name for an epoch."""

    def close(self) -> None:
        """Send what is left."""


def check(names: Sequence[str]) -> None:
    """Raise ConfigError for a tracker that nobody knows or that is not installed."""
    known = registry.names("trackers")
    for name in names:
        if name not in known:
            raise ConfigError(f"--track: unknown tracker {name!r}{did_you_mean(name, known)}")
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"--track {name} needs the package {name}: pip install {name}")


def following(names: Sequence[str], folder: Path, hear: Hear) -> closing[_Trackers]:
    """Let the block tell what happens in a run to `hear`, and its epochs to trackers, by their names in the JSON.

    The run goes on without a tracker that fails, which is told once as a message.
    """
    return closing(_Trackers(names, folder, hear))


class _Trackers:
    result: Result  # of the run, once an epoch is done

    def __init__(self, names: Sequence[str], folder: Path, hear: Hear) -> None:
        self.kinds: dict[str, type[Tracker]] = {name: registry.find("trackers", name).Tracker for name in names}
        self.folder, self.hear = folder, hear
        self.opened: dict[str, Tracker] = {}
        self.repeat = -1

    def __call__(self, event: Event) -> None:
        self.hear(event)
        sample = event.sample
        if sample is None:
            return
        if sample.repeat != self.repeat:
            self.close()
            self.repeat, self.result = sample.repeat, event.result
            for name in [*self.kinds]:
                self._attempt(name, self._open)
        values = _values(sample, "samples") | _values(event.evaluation, "evaluations")
        for name in [*self.opened]:
            self._attempt(name, lambda name: self.opened[name].log(values, sample.epoch))

    def close(self) -> None:
        """End the repeat that is tracked."""
        for name in [*self.opened]:
            self._attempt(name, lambda name: self.opened.pop(name).close())

    def _open(self, name: str) -> None:
        config = dict(flat(self.result.config))
        self.opened[name] = self.kinds[name](self.folder, f"{self.folder.name}-{self.repeat}", config)

    def _attempt(self, name: str, work: Callable[[str], None]) -> None:
        try:
            work(name)
        except Exception as error:  # of a server or a disk, which must not end a run
            for each in (self.kinds, self.opened):
                each.pop(name, None)
            message = f"{name} no longer tracks this run: {error}"
            self.hear(Event(kind="message", result=self.result, message=message))


def _values(record: Sample | Evaluation | None, section: str) -> dict[str, float]:
    """Return the numbers of a record by `section/name`."""
    fields = record.model_dump(exclude={"repeat", "epoch"}, exclude_none=True) if record else {}
    return {f"{section}/{name}": float(value) for name, value in fields.items()}
