"""The README's measured table, written from `results/*.json`: `make readme`."""

from __future__ import annotations

from pathlib import Path

from gnnbench import results, units
from gnnbench.comparison import Comparison, Row
from gnnbench.report import run, tables
from gnnbench.report.tables import Cell, Table

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- measured: begin; `make readme` writes this from results/*.json -->\n", "<!-- measured: end -->"
NOTHING = Cell("–")


def measured(paths: list[Path]) -> str:
    """One row per comparison: epoch of every backend, speedups of the last one, and the conditions."""
    found = [results.load(Comparison, path) for path in paths]
    if not found:
        return ""
    names = list(dict.fromkeys(row.backend for one in found for row in one.rows))
    heading = ["run", *names, f"{names[-1]} vs pyg", "vs fastest PyG row", "peak memory vs pyg"]
    conditions = dict.fromkeys(line for one in found for line in run.machine(one.environment))
    sizes = dict.fromkeys(
        f"{units.counted(one.rounds, 'round')} of {units.counted(one.epochs, 'epoch')}" for one in found
    )
    return tables.markdown(
        Table(heading, [_cells(one, names) for one in found], notes=[*conditions, f"Size: {', '.join(sizes)}"])
    )


def _cells(one: Comparison, names: list[str]) -> list[Cell]:
    assert one.parity.ok, "only a green comparison is shown"
    rows = {row.backend: row for row in one.rows}
    ours = rows.get(names[-1])
    return [
        Cell(run.title(one.config, one.dataset)),
        *(_epoch(rows.get(name)) for name in names),
        *(_speedup(ours, against) for against in ("pyg", "fastest_pyg")),
        Cell(units.ratio(ours.memory_ratio)) if ours and ours.memory_ratio else NOTHING,
    ]


def _epoch(row: Row | None) -> Cell:
    if row is None:
        return NOTHING
    return Cell(units.seconds(row.epoch_s.median)) if row.epoch_s else Cell(run.STATUS.get(row.status, row.status))


def _speedup(row: Row | None, against: str) -> Cell:
    found = row.speedup[against] if row else None
    return Cell(units.ratio(found.ratio), units.ratio(found.low, found.high)) if found else NOTHING


def write(readme: Path, paths: list[Path]) -> None:
    """Put the table between the marks of `readme`."""
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    readme.write_text(before + BEGIN + measured(paths) + END + after, encoding="utf-8")


if __name__ == "__main__":
    write(README, sorted((ROOT / "results").glob("*.json")))
