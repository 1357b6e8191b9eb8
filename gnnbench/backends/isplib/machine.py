"""Costs of memory and of building a Graph on this machine, as measured and kept; times predicted from them."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from bisect import bisect_right
from functools import cache
from math import ceil, floor, log2
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from gnnbench.measure import code, environment
from gnnbench.results.schema import Record

VARIABLE = "GNNBENCH_MACHINE"  # "off": the figures of `DEFAULT`
LINE_BYTES = 64  # of a cache line
LINES = (1, 4, 16)  # of the features of a node
TABLES = tuple(1 << bits for bits in (17, 20, 22, 23, 24, 25, 28))  # bytes that are gathered from
PREFETCH = (0, 16, 32)
SHIFTS = (-1, 0, 1, 2, 3)  # of blocks, beside the one whose tile takes half of the second-level cache
MOST_SHIFT = 15  # as the columns of a block are numbered in 16 bits, from one
OPS = ("spmm", "spmm_max")
DEGREE = 32  # mean length of rows


class Distance(NamedTuple):
    """How far apart gathers of the same column are."""

    columns: float  # gathered between them, at most
    edges: float  # that these take
    share: float  # of all gathers, beyond that of the distance before


Distances = tuple[Distance, ...]


class Machine(Record):
    """Nanoseconds with all threads, by op: "spmm" or "spmm_max"."""

    __hash__ = object.__hash__  # of predictions that are kept

    threads: int
    gather: dict[str, dict[int, list[list[float]]]] = Field(
        description="of an edge by row, by prefetch distance, for each of `LINES` and `TABLES`"
    )
    mean: dict[str, list[float]] = Field(
        description="exponent of the mean of gathers that cost differently, for each of `LINES`"
    )
    row: dict[str, list[float]] = Field(description="of a row beyond one for `DEGREE` edges, for each of `LINES`")
    blocked: dict[str, dict[int, dict[int, tuple[float, float, float]]]] = Field(
        description="by lines walked at once and shift: copying a line, visiting a row of a block, an edge"
    )
    wake: float = Field(description="of a product that several threads share")
    build: float = Field(description="of building a Graph of hardly any edges and its transpose, with one thread")
    build_edge: float = Field(description="and for each edge")

    def row_ns(self, op: str, prefetch: int, rows: int, edges: int, lines: int, distances: Distances) -> float:
        """By row: `edges` gathers of so many lines.

        In a table whose rows are all as likely, distances are spread evenly up to its size. So what gathers
        between two distances cost follows from the tables of these sizes, to which the edges and results that
        pass through the cache meanwhile are added. Slow gathers hold up those behind them, so that the mean of
        all is nearer to the slowest than the arithmetic one.
        """
        exponent = _at_lines(self.mean[op], lines)
        mean = before = before_sum = 0.0
        streamed = 4 + rows / max(edges, 1) * lines * LINE_BYTES * (2 if op == "spmm_max" else 1)
        for columns, between, share in distances:
            table = columns * lines * LINE_BYTES + streamed * between
            table_sum = table * self._gather_ns(op, prefetch, lines, table) ** exponent
            if share:
                mean += share * max((table_sum - before_sum) / (table - before), 0.0)
            before, before_sum = table, table_sum
        of_rows = max(rows - edges / DEGREE, 0.0) * _of_lines(self.row[op], lines)
        return of_rows + edges * mean ** (1 / exponent)

    def _gather_ns(self, op: str, prefetch: int, lines: int, table: float) -> float:
        """One gather of so many lines from a table of so many bytes."""
        right, to_right = _between(TABLES, table)
        figures = self.gather[op][prefetch]
        return _of_lines([ns[right - 1] * (1 - to_right) + ns[right] * to_right for ns in figures], lines)

    def blocked_ns(
        self, op: str, shift: float, rows: int, cols: int, edges: int, blocks: int, lines: int
    ) -> float:
        """Over so many blocks of columns; `shift` as in `SHIFTS`, of the columns that a block holds."""
        at_once = min(lines, max(self.blocked[op]))
        by_shift = self.blocked[op][at_once]
        lower, upper = (min(max(each, min(by_shift)), max(by_shift)) for each in (floor(shift), ceil(shift)))
        copy, walk, edge = by_shift[lower]
        edge += (by_shift[upper][2] - edge) * (shift - lower if lower < upper else 0.0)
        return -(-lines // at_once) * ((rows + cols) * at_once * copy + rows * blocks * walk + edges * edge)


def _of_lines(figures: list[float], lines: int) -> float:
    """Return the cost of so many lines, by figures for each of `LINES`; beyond the last one it is constant."""
    return max(lines / LINES[-1], 1.0) * _at_lines(figures, lines)


def _at_lines(figures: list[float], lines: int) -> float:
    """Between figures for each of `LINES`."""
    upper = min(max(bisect_right(LINES, lines), 1), len(LINES) - 1)
    to_upper = min((lines - LINES[upper - 1]) / (LINES[upper] - LINES[upper - 1]), 1.0)
    return figures[upper - 1] * (1 - to_upper) + figures[upper] * to_upper


def _between(grid: tuple[int, ...], at: float) -> tuple[int, float]:
    """The upper neighbour of `at` in a grid of rising numbers, and how far towards it `at` is, in logarithms."""
    right = min(max(bisect_right(grid, at), 1), len(grid) - 1)
    low, high = grid[right - 1], grid[right]
    return right, min(max(log2(max(at, 1.0) / low) / log2(high / low), 0.0), 1.0)


DEFAULT = Machine.model_validate_json(Path(__file__).with_suffix(".json").read_bytes())  # of an AMD EPYC (Zen 4)


class Stored(Record):
    """A machine on disk."""

    schema_version: Literal[1] = 1
    facts: dict[str, Any]
    machine: Machine


@cache
def facts() -> dict[str, Any]:
    """Return the facts of the machine that its figures depend on."""
    return {"cpu": environment.cpu(), "isa": os.environ.get("GNNBENCH_ISA", ""), "kernels": code.kernels()}


def path() -> Path:
    """The file of this machine."""
    key = hashlib.sha256(json.dumps(facts(), sort_keys=True).encode()).hexdigest()[:16]
    return _folder() / f"{key}.json"


def _folder() -> Path:
    from gnnbench import datasets

    return datasets.roots().cache / "machine"


@cache
def current() -> Machine:
    """This machine as it was measured, or `DEFAULT` where it was not."""
    if os.environ.get(VARIABLE) == "off":
        return DEFAULT
    if not _folder().exists():  # without hashing the kernels, which takes longer than a small model's forward
        return DEFAULT
    file = path()
    try:
        stored = Stored.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return DEFAULT
    except (OSError, ValidationError) as error:
        problem = getattr(error, "strerror", None) or "it is not a model of a machine"
    else:
        if stored.facts == facts():
            return stored.machine
        problem = "it is of another machine or version"
    warnings.warn(f"{file} is ignored ({problem}): run `gnnbench tune --machine` again", stacklevel=2)
    return DEFAULT
