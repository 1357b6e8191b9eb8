"""Runs and comparisons over time, read from their JSON: as tables, and epochs over revisions as pictures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnbench import kinds, units
from gnnbench.comparison.record import Comparison
from gnnbench.errors import ConfigError
from gnnbench.kinds import run
from gnnbench.measure import environment
from gnnbench.report.plots import Line, Panel
from gnnbench.report.tables import NOTHING, Cell, Cells, Table
from gnnbench.results import files
from gnnbench.results.schema import Result
from gnnbench.stats import grouped

if TYPE_CHECKING:
    from gnnbench.comparison.record import Row

FOLDER = Path("runs")
NAMES = (files.COMPARISON, files.RUN)  # of results whose rows have epochs
WITHIN = {"rounds", "parity", "cells"}  # folders in those of other results
COMPARABLE = attrgetter("title", "kind", "configuration", "machine")  # alike where times can be compared
TO_THE_MINUTE = len("2025-11-22 12:00")


class Entry(NamedTuple):
    """A backend's row of a comparison, or a run."""

    path: str
    backend: str
    kind: str
    written: str  # when its JSON was, as in 2025-11-22 12:00:00
    title: str  # model and dataset
    machine: str
    revision: str  # of the code, empty where it is not known
    configuration: str  # hash of the resolved configuration with its threads, backends aside
    epoch_s: float  # median with its 95% interval
    low: float
    high: float
    metric: str
    test: float | None


def entries(
    paths: Sequence[Path] = (), words: str = "", *, all_machines: bool = False
) -> tuple[list[Entry], list[str]]:
    """Read results whose title, backend or path has `words`, the oldest first; of this machine.

    Args:
        paths: folders below which they lie, or JSON files; by default `runs`.

    Returns:
        The entries, and a sentence for every file that should be a result and cannot be read.

    Raises:
        ConfigError: a path does not exist.
    """
    known, refused = _known(paths, all_machines)
    return [each for each, _ in known if words in f"{each.title} {each.backend} {each.path}"], refused


def epochs() -> list[tuple[dict[str, Any], float]]:
    """Configurations of this machine's results in `runs` with their median epochs in seconds, the latest first."""
    return [
        ({**config, "backend": {"name": entry.backend.partition(":")[0]}}, entry.epoch_s)
        for entry, config in reversed(_known((), False)[0])
    ]


def _known(paths: Sequence[Path], all_machines: bool) -> tuple[list[tuple[Entry, dict[str, Any]]], list[str]]:
    """Entries with their configurations, the oldest first, and sentences on what cannot be read."""
    known: list[tuple[Entry, dict[str, Any]]] = []
    refused: list[str] = []
    for file in _files(paths or [path for path in (FOLDER,) if path.exists()]):
        try:
            record: Any = kinds.load(file)
        except ConfigError as error:
            refused += [str(error)] if file.name in NAMES or file in paths else []
        else:
            known += [(entry, record.config) for entry in _entries(file, record)]
    here = "" if all_machines else machine(environment.describe())
    of_here = [each for each in known if here in ("", each[0].machine)]
    return sorted(of_here, key=lambda each: each[0].written), refused


def machine(facts: dict[str, Any]) -> str:
    """Processor, usable cores and GPUs in words; empty where a run ended before they were known."""
    if not (cpu := facts.get("cpu")):
        return ""
    parts = [cpu.get("model") or cpu.get("architecture"), f"{cpu.get('usable_cores')} cores"]
    return ", ".join([*map(str, parts), *(gpu["model"] for gpu in facts.get("gpus") or [])])


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path}: does not exist; give folders of results or their JSON files")
        below = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        yield from (each.resolve() for each in below if not WITHIN & {*each.relative_to(path).parts})


def _entries(path: Path, record: Any) -> Iterator[Entry]:
    """Yield those of a run or a comparison; other results have none."""
    if not isinstance(record, (Result, Comparison)):
        return
    rows: Sequence[Row | Result] = [record] if isinstance(record, Result) else record.rows
    threads = record.environment.get("threads", {}).get("torch")
    shared = {name: section for name, section in record.config.items() if name != "backend"}
    settings = json.dumps({**shared, "threads": threads}, sort_keys=True)
    git = record.environment.get("git") or {}
    for row in rows:
        if row.epoch_s:
            yield Entry(
                path=str(path),
                backend=row.backend,
                kind="run" if row is record else "comparison",
                written=datetime.fromtimestamp(path.stat().st_mtime).isoformat(" ", "seconds"),
                title=run.title(record.config, record.dataset),
                machine=machine(record.environment),
                revision=str(git.get("revision", ""))[:12] + "+" * bool(git.get("dirty")),
                configuration=hashlib.sha256(settings.encode()).hexdigest()[:12],
                epoch_s=row.epoch_s.median,
                low=row.epoch_s.low,
                high=row.epoch_s.high,
                metric=row.metrics.name if row.metrics else "",
                test=row.metrics.test if row.metrics else None,
            )


def tables(entries: Sequence[Entry]) -> list[Table]:
    """A table per configuration: a row per result, the newest last, and a column per backend."""
    drawn = [*map(_table, grouped(entries, COMPARABLE).values())]
    if not drawn:
        return [Table(("written", "epoch"), [], notes=["There is no run or comparison of this machine"])]
    machines = dict.fromkeys(f"Machine: {entry.machine}" for entry in entries if entry.machine)
    return [*drawn[:-1], replace(drawn[-1], notes=[*machines])]


def panels(entries: Sequence[Entry]) -> list[Panel]:
    """A picture per configuration: the median epoch of every result, with a line per backend, over revisions."""
    return [*map(_panel, grouped(entries, COMPARABLE).values())]


def _table(group: Sequence[Entry]) -> Table:
    metrics = dict.fromkeys(entry.metric for entry in group if entry.metric)
    backends = dict.fromkeys(entry.backend for entry in group)
    rows: list[Cells] = []
    for path, of_result in grouped(group, attrgetter("path")).items():
        epochs = {
            each.backend: Cell(units.seconds(each.epoch_s), units.interval(units.seconds, each.low, each.high))
            for each in of_result
        }
        quality = sorted({f"{each.test:.4f}" for each in of_result if each.test is not None})
        ends = dict.fromkeys(quality[:1] + quality[-1:])
        rows.append(
            {
                "written": Cell(of_result[0].written[:TO_THE_MINUTE], of_result[0].revision),
                **{name: epochs.get(name, NOTHING) for name in backends},
                f"test {'/'.join(metrics) or 'metric'}": "–".join(ends) or NOTHING,
                "result": _place(path),
            }
        )
    about = f"{group[0].title}: {units.counted(len(rows), group[0].kind)}"
    return Table.of(rows, title=about, prose=(0, len(backends) + 2))


def _panel(group: Sequence[Entry]) -> Panel:
    unit, scale = units.scale(max(entry.epoch_s for entry in group))
    places = {path: float(place) for place, path in enumerate(dict.fromkeys(entry.path for entry in group))}
    revisions = {places[entry.path]: entry.revision[:7] or entry.written[5:10] for entry in group}
    lines = [
        Line(backend, [(places[each.path], each.epoch_s / scale) for each in of_backend])
        for backend, of_backend in grouped(group, attrgetter("backend")).items()
    ]
    return Panel(
        f"{group[0].title}, {units.counted(len(places), group[0].kind)}",
        "revision, a point per result",
        f"epoch, {unit}",
        lines,
        {place: "" if revisions.get(place - 1) == name else name for place, name in revisions.items()},
    )


def _place(path: str) -> str:
    """The result as `gnnbench report` takes it, as seen from the working directory if it lies below."""
    place = Path(path)
    place = place.parent if place.name in NAMES else place
    with suppress(ValueError):
        return str(place.relative_to(Path.cwd()))
    return str(place)
