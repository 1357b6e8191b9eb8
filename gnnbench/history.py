"""Runs and comparisons over time, read from their JSON: as tables, and epochs over revisions as pictures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnbench import stored, units
from gnnbench.errors import ConfigError
from gnnbench.kinds import run
from gnnbench.measure import environment
from gnnbench.report.plots import Line, Panel
from gnnbench.report.tables import NOTHING, Cell, Cells, Table
from gnnbench.results.schema import Result

if TYPE_CHECKING:
    from gnnbench.comparison.record import Row

FOLDER = Path("runs")
KINDS = {
    "comparison.json": "comparison",
    "results.json": "run",
}  # whose rows have epochs
PARTS = {"rounds", "parity", "cells"}  # folders of results that are parts of others
SPREAD = 4.0  # largest epoch over the smallest, from which on an axis is logarithmic
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

    @property
    def series(self) -> tuple[str, ...]:
        """Return what results have in common whose times can be compared."""
        return self.title, self.kind, self.configuration, self.machine, self.backend


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
    refused: list[str] = []
    found = [
        each
        for each, _ in _known(paths, all_machines, refused)
        if words in f"{each.title} {each.backend} {each.path}"
    ]
    return found, refused


def epochs() -> list[tuple[dict[str, Any], float]]:
    """Configurations of this machine's results in `runs` with their median epochs in seconds, the latest first."""
    return [
        ({**config, "backend": {"name": entry.backend.partition(":")[0]}}, entry.epoch_s)
        for entry, config in reversed(_known((), False, []))
    ]


def _known(paths: Sequence[Path], all_machines: bool, refused: list[str]) -> list[tuple[Entry, dict[str, Any]]]:
    """Entries with their configurations, the oldest first; sentences on what cannot be read go to `refused`."""
    known: list[tuple[Entry, dict[str, Any]]] = []
    for file in _files(paths or [path for path in (FOLDER,) if path.exists()]):
        try:
            kind, record = stored.record(file)
        except ConfigError as error:
            refused += [str(error)] if file.name in KINDS or file in paths else []
        else:
            rows = _entries(file, record) if kind in KINDS.values() else ()
            known += [(entry, record.config) for entry in rows]
    here = "" if all_machines else machine(environment.describe())
    return sorted((each for each in known if here in ("", each[0].machine)), key=lambda each: each[0].written)


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
        yield from (each.resolve() for each in below if not PARTS & {*each.relative_to(path).parts})


def _entries(path: Path, record: Any) -> Iterator[Entry]:
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
    drawn = [_table(group) for group in _groups(entries)]
    machines = dict.fromkeys(entry.machine for entry in entries if entry.machine)
    where = [f"Machine: {machine}" for machine in machines]
    if not drawn:
        return [Table(("written", "epoch"), [], notes=["There is no run or comparison of this machine"])]
    return [*drawn[:-1], replace(drawn[-1], notes=[*drawn[-1].notes, *where])]


def panels(entries: Sequence[Entry]) -> list[Panel]:
    """A picture per configuration: the median epoch of every result, with a line per backend, over revisions."""
    return [_panel(group) for group in _groups(entries)]


def _groups(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Results of the same configuration, whatever their backends."""
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.series[:-1], []).append(entry)
    return [*groups.values()]


def _table(group: Sequence[Entry]) -> Table:
    metrics = dict.fromkeys(entry.metric for entry in group if entry.metric)
    backends = dict.fromkeys(entry.backend for entry in group)
    rows: list[Cells] = []
    for path in dict.fromkeys(entry.path for entry in group):
        of_result = {entry.backend: entry for entry in group if entry.path == path}
        first = next(iter(of_result.values()))
        epochs = {name: _epoch(of_result.get(name)) for name in backends}
        quality = _quality([*of_result.values()])
        rows.append(
            {
                "written": Cell(first.written[:TO_THE_MINUTE], first.revision),
                **epochs,
                f"test {'/'.join(metrics) or 'metric'}": quality,
                "result": _place(path),
            }
        )
    about = f"{group[0].title}: {units.counted(len(rows), group[0].kind)}"
    return Table.of(rows, title=about, prose=(0, len(backends) + 2))


def _panel(entries: Sequence[Entry]) -> Panel:
    unit, scale = units.scale(max(entry.epoch_s for entry in entries))
    places = {path: float(place) for place, path in enumerate(dict.fromkeys(entry.path for entry in entries))}
    revisions = {places[entry.path]: entry.revision[:7] or entry.written[5:10] for entry in entries}
    lines: dict[str, list[tuple[float, float]]] = {}
    for entry in entries:
        lines.setdefault(entry.backend, []).append((places[entry.path], entry.epoch_s / scale))
    return Panel(
        f"{entries[0].title}, {units.counted(len(places), entries[0].kind)}",
        "revision, a point per result",
        f"epoch, {unit}",
        [Line(backend, points) for backend, points in lines.items()],
        {place: "" if revisions.get(place - 1) == name else name for place, name in revisions.items()},
        spread=SPREAD,
    )


def _place(path: str) -> str:
    """The result as `gnnbench report` takes it, as seen from the working directory if it lies below."""
    place = Path(path)
    place = place.parent if place.name in KINDS else place
    with suppress(ValueError):
        return str(place.relative_to(Path.cwd()))
    return str(place)


def _epoch(entry: Entry | None) -> Cell:
    if entry is None:
        return NOTHING
    return Cell(units.seconds(entry.epoch_s), units.interval(units.seconds, entry.low, entry.high))


def _quality(of_result: Sequence[Entry]) -> Cell:
    """The lowest and the highest of all backends."""
    values = sorted({f"{entry.test:.4f}" for entry in of_result if entry.test is not None})
    return Cell("–".join(dict.fromkeys((values[0], values[-1])))) if values else NOTHING
