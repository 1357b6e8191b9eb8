"""`gnnbench doctor`: what it finds, with and without kernels and data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnbench import backends, datasets, doctor
from gnnbench.backends import isplib
from gnnbench.backends.isplib import _compiled


@pytest.fixture
def where(tmp_path: Path) -> datasets.Roots:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "processed.npy").write_bytes(b"12345")
    return datasets.Roots(tmp_path / "raw", tmp_path / "cache")


def text(found: dict) -> str:
    return "\n".join(f"{cells[0].text}: {cells[1].text}" for cells in doctor.table(found).rows)


@pytest.mark.usefixtures("no_gpu")
def test_every_backend_is_named_with_what_it_lacks(where: datasets.Roots) -> None:
    found = doctor.examine(where)
    assert set(found["backends"]) == set(backends.names())
    assert found["backends"]["pyg"] == {"available": True, "reasons": [], "remark": ""}
    assert not found["backends"]["cuda"]["available"]
    assert all(reason in text(found) for reason in found["backends"]["cuda"]["reasons"])
    json.dumps(found)


def test_missing_kernels_come_with_their_remedy(where: datasets.Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compiled, "MISSING", "No module named 'gnnbench.backends.isplib._spmm'")
    monkeypatch.setattr(doctor, "COMPILERS", ("no-such-compiler",))
    found = doctor.examine(where)
    assert found["compiler"] is None
    assert found["kernels"]["built"] == "no"
    assert "pip install -e ." in found["backends"]["isplib"]["reasons"][0]
    assert "install one such as gcc" in text(found)


@pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built")
def test_the_instruction_set_in_use_is_shown(where: datasets.Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNBENCH_ISA", "baseline")
    assert "running baseline" in text(doctor.examine(where))
    monkeypatch.setenv("GNNBENCH_ISA", "avx3")
    assert "GNNBENCH_ISA='avx3' is unknown" in text(doctor.examine(where))


def test_data_on_disk_are_listed(where: datasets.Roots) -> None:
    assert not doctor.examine(where)["data"]["root_exists"]
    where.raw.mkdir()
    (where.raw / "graph.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n1 1 0\n")
    data = doctor.examine(where)["data"]
    assert data["root_exists"]
    assert data["cache_bytes"] == 5
    assert any("graph.mtx" in spec for spec in data["on_disk"])
