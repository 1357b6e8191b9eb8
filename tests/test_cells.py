"""Cells side by side, in processes: all end, and Ctrl-C ends those that run without a trace."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import psutil

from gnnbench import cells
from tests.support.compare_runner import ROOTS
from tests.support.sleeper import Sleeper, Work


def test_a_cell_that_was_stopped_runs_again(tmp_path: Path) -> None:
    work = Work(cell=Sleeper(key="stopped", seconds=0.0, status="interrupted"), roots=ROOTS, out=tmp_path)
    assert not cells.perform(work, print)
    assert work.latest() is None


def test_ctrl_c_ends_the_cells_that_run_side_by_side(tmp_path: Path) -> None:
    works = [
        Work(cell=Sleeper(key=key, seconds=seconds), roots=ROOTS, out=tmp_path / key)
        for key, seconds in (("quick", 0.0), ("slow", 60.0), ("later", 60.0))
    ]
    records = [cells.CellRecord(key=work.cell.key, definition={}) for work in works]

    def stop(work: cells.Work) -> None:
        raise KeyboardInterrupt

    assert cells.run(works, records, partial(cells.abreast, jobs=2), stop) == "interrupted"
    assert [record.outcome and record.outcome.status for record in records] == ["ok", None, None]
    assert [work.latest() is None for work in works] == [False, True, True]
    left = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            left += [child] if "tests.support.sleeper:Work" in child.cmdline() else []
    assert left == []
