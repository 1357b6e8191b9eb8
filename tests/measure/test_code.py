"""The hash of the code that runs: it changes with everything that takes part, and with nothing else."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

import gnnbench
from gnnbench.measure import code


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of this package that may be changed."""
    copy = tmp_path / "gnnbench"
    shutil.copytree(Path(gnnbench.__file__).parent, copy)
    monkeypatch.setattr(gnnbench, "__file__", str(copy / "__init__.py"))
    return copy


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("backends/isplib/_spmm.abi3.so", True),
        ("ops/spmm.py", True),
        ("comparison/parity/judge.py", True),
        ("training/loop.py", True),
        ("report/tables.py", False),
        ("kinds/run.py", False),
        ("cli/verb.py", False),
        ("configs/demo.yaml", False),
    ],
)
def test_it_changes_with_what_runs(package: Path, name: str, counts: bool) -> None:
    before, path = code.digest(), package / name
    path.touch()
    assert code.digest() == before
    content = path.read_bytes() if path.exists() else b""
    path.write_bytes(content[:-1] + b"#")
    assert (code.digest() != before) is counts


def test_variables_that_choose_kernels_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = code.digest()
    monkeypatch.setenv("GNNBENCH_ISA", "baseline")
    assert code.digest() != before


def test_the_module_of_another_package_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "single_backend.py").write_text("1")
    (tmp_path / "whole_backend").mkdir()
    (tmp_path / "whole_backend" / "__init__.py").write_text("1")
    (tmp_path / "whole_backend" / "kernels.py").write_text("1")
    names = "single_backend", "whole_backend.kernels"
    before = [code.digest(name) for name in names]
    assert len({*before, code.digest(), code.digest("nowhere_to_be_found")}) == 3
    (tmp_path / "single_backend.py").write_text("2")
    (tmp_path / "whole_backend" / "kernels.py").write_text("2")
    assert not {*before} & {code.digest(name) for name in names}


def test_it_costs_little() -> None:
    best = min(_seconds() for _ in range(5))
    assert best < 0.5


def _seconds() -> float:
    start = time.perf_counter()
    code.digest()
    return time.perf_counter() - start
