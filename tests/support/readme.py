"""The README's tables, written from what was measured under `results/`: `make readme`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from gnnbench import units
from gnnbench.bench.records import Bench
from gnnbench.compare.record import Comparison, Row
from gnnbench.report import bench, run, tables
from gnnbench.report import reproduce as reproduction
from gnnbench.report.tables import Cell, Table
from gnnbench.reproduce import Reproduction
from gnnbench.results import files, schema
from gnnbench.results.schema import Ratio

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
RESULTS = ROOT / "results"
NOTHING = Cell("–")


def measured(paths: list[Path]) -> str:
    """One table per machine, one row per comparison: epochs, speedups of the last backend, and the conditions."""
    found = [files.load(Comparison, path) for path in paths]
    machines = dict.fromkeys(tuple(run.machine(one.environment)) for one in found)
    return "\n".join(
        _on_one_machine([one for one in found if tuple(run.machine(one.environment)) == machine])
        for machine in machines
    )


def _on_one_machine(found: list[Comparison]) -> str:
    names = list(dict.fromkeys(row.backend for one in found for row in one.rows))
    against = {"pyg": f"{names[-1]} vs pyg"} | ({"fastest_pyg": "vs fastest PyG row"} if len(names) > 2 else {})
    heading = ["run", *names, *against.values(), "peak memory vs pyg"]
    sizes = dict.fromkeys(
        f"{units.counted(one.rounds, 'round')} of {units.counted(one.epochs, 'epoch')}" for one in found
    )
    notes = [*run.machine(found[0].environment), f"Size: {', '.join(sizes)}"]
    return tables.markdown(Table(heading, [_cells(one, names, against) for one in found], notes=notes))


def _cells(one: Comparison, names: list[str], against: Iterable[str]) -> list[Cell]:
    assert one.parity.ok, "only a green comparison is shown"
    rows = {row.backend: row for row in one.rows}
    ours = rows.get(names[-1])
    return [
        Cell(run.title(one.config, one.dataset)),
        *(_epoch(rows.get(name)) for name in names),
        *(_gain(ours.speedup[baseline] if ours else None) for baseline in against),
        Cell(units.ratio(ours.memory_ratio)) if ours and ours.memory_ratio else NOTHING,
    ]


def _epoch(row: Row | None) -> Cell:
    if row is None:
        return NOTHING
    return Cell(units.seconds(row.epoch_s.median)) if row.epoch_s else Cell(run.STATUS.get(row.status, row.status))


def _gain(found: Ratio | None) -> Cell:
    return Cell(units.ratio(found.ratio), units.ratio(found.low, found.high)) if found else NOTHING


def contested(paths: list[Path]) -> str:
    """One row per op, graph, direction and peer: what ours gains at every width, and the conditions."""
    found = [files.load(Bench, path) for path in paths]
    machines = {tuple(run.machine(one.environment)) for one in found}
    assert len(machines) <= 1, "ops that were measured on two machines are not to be read side by side"
    widths = sorted({row.width for one in found for row in one.rows})
    rows = [row for one in found for row in _gains(one, widths)]
    peers = {f"{name} {version}": None for one in found for name, version in one.versions.items()}
    notes = [*(note for machine in machines for note in machine), f"Peers: {', '.join(peers)}"]
    return tables.markdown(Table(["op", "gain of", "over", *map(str, widths)], rows, notes=notes))


def _gains(one: Bench, widths: list[int]) -> Iterator[list[Cell]]:
    assert one.exit_code == 0, "only what was found right is shown"
    pairs = [(bench.OURS, peer) for peer in one.peers if peer != bench.BF16] + [(bench.BF16, bench.OURS)]
    for direction in dict.fromkeys(row.direction for row in one.rows):
        op = bench.title(one) + (", backward" if direction == "backward" else "")
        for name, peer in pairs:
            rows = [row for row in one.rows if (row.implementation, row.direction) == (name, direction)]
            gains = {row.width: gain for row in rows if (gain := row.ratio.get(peer))}
            if gains:
                yield [Cell(op), Cell(name), Cell(peer), *(_gain(gains.get(width)) for width in widths)]


def reproduced(paths: list[Path]) -> str:
    """The claims of every reproduction, with protocols and conditions."""
    found = [files.load(Reproduction, path) for path in paths]
    return "\n".join(tables.markdown(reproduction.claims(one)) for one in found)


def written(text: str, results: Path) -> str:
    """The text of a README with its tables as `results` has them now."""
    tables_of = {".": measured, "ops": contested, "dropin": measured, "reproductions": reproduced}
    for folder, table in tables_of.items():
        begin, end = marks(folder)
        before, rest = text.split(begin)
        text = before + begin + table(sorted(schema.glob(f"{folder}/*.json"))) + end + rest.split(end)[1]
    return text


def marks(folder: str) -> tuple[str, str]:
    """What stands before and after the table of a folder of `results/`."""
    path = Path("results", folder, "*.json").as_posix()
    return f"<!-- begin; `make readme` writes this from {path} -->\n", f"<!-- end of {path} -->"


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8"), RESULTS), encoding="utf-8")
