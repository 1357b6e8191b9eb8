"""Runs and comparisons over time: an index in SQLite, which can be made anew from their JSON at any time."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnbench.errors import ConfigError, GnnbenchError
from gnnbench.measure import environment
from gnnbench.report import run
from gnnbench.results.schema import Result

if TYPE_CHECKING:
    from gnnbench.comparison.record import Row
    from gnnbench.report.page import Stored

NAME = "history.sqlite"
KINDS = {"comparison.json": "comparison", "results.json": "run"}  # whose rows have epochs
PARTS = {"rounds", "parity", "cells"}  # folders of results that are parts of others
VERSION = 2  # of the table; another one is dropped, as --rebuild makes it anew
LATEST = 50  # results whose configurations are read


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
    epoch_s: float | None  # median with its 95% interval
    low: float | None
    high: float | None
    metric: str
    test: float | None

    @property
    def series(self) -> tuple[str, ...]:
        """Return what results have in common whose times can be compared."""
        return self.title, self.kind, self.configuration, self.machine, self.backend


COLUMNS = ", ".join(Entry._fields)


def add(cache: Path, result: Stored) -> None:
    """Index a run or a comparison whose JSON was written; what was known of this file is replaced.

    Raises:
        GnnbenchError: the index cannot be written.
    """
    with _index(cache) as index:
        _put(index, result)


def remember(cache: Path, kind: str, record: Any, path: Path) -> None:
    """Index a result whose JSON was just written to `path`; nothing fails by that, but is told."""
    from gnnbench.report.page import Stored

    try:
        add(cache, Stored(kind, record, path))
    except GnnbenchError as error:
        print(f"gnnbench: {error}", file=sys.stderr)


def rebuild(cache: Path, paths: Iterable[Path]) -> tuple[int, list[str]]:
    """Make the index anew from the runs and comparisons below `paths`: their number, and why others were left out.

    Raises:
        ConfigError: a path does not exist.
        GnnbenchError: the index cannot be written.
    """
    from gnnbench import stored

    given = [*paths]
    results, refused = [], []
    for file in [*_files(given)]:
        try:
            result = stored.load(file)
        except ConfigError as error:
            refused += [str(error)] if file.name in KINDS or file in given else []
        else:
            results += [result] if result.kind in KINDS.values() else []
    try:
        with _index(cache):
            pass
    except ConfigError:  # broken
        (cache / NAME).unlink()
    with _index(cache) as index:
        index.execute("DELETE FROM results")
        for result in results:
            _put(index, result)
    return len(results), refused


def entries(cache: Path, words: str = "", *, all_machines: bool = False) -> list[Entry]:
    """The entries whose title, backend or path has `words`, the oldest first; of this machine.

    Raises:
        GnnbenchError: the index cannot be read.
    """
    here = "" if all_machines else machine(environment.describe())
    with _index(cache) as index:
        rows = index.execute(
            f"SELECT {COLUMNS} FROM results WHERE instr(title || ' ' || backend || ' ' || path, ?) "
            "AND (? = '' OR machine = ?) ORDER BY written, path, rowid",
            (words, here, here),
        ).fetchall()
    return [Entry(*row) for row in rows]


def epochs(cache: Path) -> list[tuple[dict[str, Any], float]]:
    """Configurations of the latest results of this machine with their median epochs in seconds, the latest first.

    Raises:
        GnnbenchError: the index cannot be read.
    """
    from gnnbench import stored

    measured: list[tuple[dict[str, Any], float]] = []
    configs: dict[str, dict[str, Any]] = {}
    for entry in reversed(entries(cache)):
        if entry.path not in configs and len(configs) < LATEST:
            with suppress(ConfigError):  # of a result that is no longer there
                configs[entry.path] = stored.load(Path(entry.path)).record.config
        if entry.epoch_s and entry.path in configs:
            backend = {"name": entry.backend.partition(":")[0]}
            measured.append(({**configs[entry.path], "backend": backend}, entry.epoch_s))
    return measured


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
        yield from (each for each in below if not PARTS & {*each.relative_to(path).parts})


def _put(index: sqlite3.Connection, result: Stored) -> None:
    path = str(result.path.resolve())
    index.execute("DELETE FROM results WHERE path = ?", (path,))
    if result.kind not in KINDS.values():
        return
    record = result.record
    rows = [record] if isinstance(record, Result) else record.rows
    threads = record.environment.get("threads", {}).get("torch")
    settings = {name: section for name, section in record.config.items() if name != "backend"} | {
        "threads": threads
    }
    git = record.environment.get("git") or {}
    shared: dict[str, Any] = {
        "path": path,
        "kind": result.kind,
        "written": datetime.fromtimestamp(result.path.stat().st_mtime).isoformat(" ", "seconds"),
        "title": run.title(record.config, record.dataset),
        "machine": machine(record.environment),
        "revision": str(git.get("revision", ""))[:12] + "+" * bool(git.get("dirty")),
        "configuration": hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12],
    }
    marks = ", ".join("?" * len(Entry._fields))
    for entry in (Entry(**shared, **_figures(row)) for row in rows if row.epoch_s):
        index.execute(f"INSERT INTO results ({COLUMNS}) VALUES ({marks})", entry)


def _figures(row: Row | Result) -> dict[str, Any]:
    assert row.epoch_s
    quality = row.metrics
    return {
        "backend": row.backend,
        "epoch_s": row.epoch_s.median,
        "low": row.epoch_s.low,
        "high": row.epoch_s.high,
        "metric": quality.name if quality else "",
        "test": quality.test if quality else None,
    }


@contextmanager
def _index(cache: Path) -> Iterator[sqlite3.Connection]:
    """The table, in a transaction."""
    path = cache / NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=30)) as index, index:
            if index.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                index.execute("DROP TABLE IF EXISTS results")
                index.execute(f"PRAGMA user_version = {VERSION}")
            index.execute(f"CREATE TABLE IF NOT EXISTS results ({COLUMNS})")
            yield index
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise GnnbenchError(f"{path}: the index of results cannot be used: {error}") from None
        remedy = "make it anew of the results below a folder: gnnbench history --rebuild runs"
        raise ConfigError(f"{path}: the index of results is broken: {error}; {remedy}") from None
    except OSError as error:
        raise GnnbenchError(f"{path}: the index of results cannot be used: {error}") from None
