"""Parts in files: written one by one they are what `split` takes, and what is broken is told in a sentence."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from gnnbench.datasets import NodeDataset, Roots, mapped, synthetic
from gnnbench.errors import DatasetError
from gnnbench.graph import Compressed, CSRBuilder
from gnnbench.partition import part
from tests.support.commands import run
from tests.support.partition import cases, dataset

CPU = torch.device("cpu")
CONFIG = synthetic.Config(preset="cora")


def written(data: NodeDataset, assignment: Tensor, parts: int, folder: Path) -> part.Partition:
    return part.write(data, data.graph(CPU), assignment, parts, folder, config=CONFIG, method="random", seed=0)


@settings(max_examples=8, deadline=None)
@given(cases())
def test_what_is_read_is_the_part(case: tuple[NodeDataset, Tensor, int]) -> None:
    data, assignment, parts = case
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "parts")
        partition = written(data, assignment, parts, folder)
        assert mapped.read_record(part.Partition, folder / part.MANIFEST) == partition
        assert (partition.num_nodes, partition.num_edges) == (data.num_nodes, data.num_edges)
        for rank in range(parts):
            expected, loaded = part.split(data, assignment, rank, parts), part.load(folder, rank, parts, CONFIG)
            for name, value in vars(expected).items():
                if isinstance(value, Tensor):
                    torch.testing.assert_close(getattr(loaded, name), value, rtol=0, atol=0)
                else:
                    assert getattr(loaded, name) == value, name


@pytest.mark.parametrize("method", ["random", "contiguous"])
def test_a_mapped_graph_is_never_in_memory_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: part.Method
) -> None:
    """Edges are sorted a part at a time, and the files are those of the same graph in memory."""
    data = dataset(300, 4000, seed=5)
    assignment = part.assign(data.graph(CPU), 3, method, 1)
    expected = written(data, assignment, 3, tmp_path / "parts")
    mapped.write(data, tmp_path / "maps")
    stored = mapped.load(mapped.Config(path=tmp_path / "maps"), Roots(tmp_path, tmp_path / "cache"))
    sorted_at_once: list[int] = []
    csr = CSRBuilder.csr

    def counted(self: CSRBuilder, row: Tensor, *rest: Any) -> Compressed:
        sorted_at_once.append(len(row))
        return csr(self, row, *rest)

    monkeypatch.setattr(CSRBuilder, "csr", counted)
    assert torch.equal(part.assign(stored.graph(CPU), 3, method, 1), assignment)
    streamed = written(stored, assignment, 3, tmp_path / "streamed")
    assert streamed.parts == expected.parts
    assert sorted_at_once == [each.edges for each in streamed.parts]
    assert "edge_index" not in vars(stored)


def altered(name: str, change: Callable[[np.ndarray], None], *, seal: bool = False) -> Callable[[Path], None]:
    """Changes an array of rank 1, and with `seal` the manifest's checksum of it too."""

    def alter(folder: Path) -> None:
        array = np.load(folder / "part-0001" / f"{name}.npy", mmap_mode="r+")
        change(array)
        array.flush()
        if seal:
            manifest = json.loads((folder / part.MANIFEST).read_text())
            manifest["parts"][1]["sha256"] = part._checksum(folder / "part-0001")
            (folder / part.MANIFEST).write_text(json.dumps(manifest))

    return alter


def truncated(folder: Path) -> None:
    path = folder / "part-0001" / "x.npy"
    path.write_bytes(path.read_bytes()[:-4])


def foreign(folder: Path) -> None:
    """A part with the same shapes, of other features."""
    data = dataset(60, 400, seed=3)
    data.x += 1
    written(data, torch.arange(60) % 3, 3, folder / "other")
    shutil.rmtree(folder / "part-0001")
    (folder / "other" / "part-0001").rename(folder / "part-0001")


def headed(**values: object) -> Callable[[Path], None]:
    def alter(folder: Path) -> None:
        path = folder / part.MANIFEST
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return alter


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no manifest": (
        lambda folder: (folder / part.MANIFEST).unlink(),
        "partition.json: cannot be read: No such file",
    ),
    "no JSON": (lambda folder: (folder / part.MANIFEST).write_text("{") and None, "partition.json: invalid json"),
    "another version": (headed(schema_version=2), "partition.json: schema_version: input should be 1"),
    "missing": (lambda folder: shutil.rmtree(folder / "part-0001"), "rowptr.npy: cannot be mapped: No such file"),
    "truncated": (truncated, "x.npy: cannot be mapped: truncated or no array"),
    "altered": (
        altered("x", lambda x: x.__setitem__((0, 0), 7)),
        "its checksum differs: it was altered or belongs to",
    ),
    "foreign": (foreign, "its checksum differs: it was altered or belongs to another partition"),
    "column beyond": (
        altered("col", lambda col: col.__setitem__(0, 999), seal=True),
        "edge 0 comes from node 999",
    ),
    "halo inside": (
        altered("halo", lambda halo: halo.__setitem__(0, 20), seal=True),
        "other than those of the part",
    ),
    "halo falls": (altered("halo", lambda halo: halo.__setitem__(0, 59), seal=True), "must hold ascending ids"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_one_sentence(tmp_path: Path, name: str) -> None:
    alter, words = BROKEN[name]
    folder = tmp_path / "parts"
    written(dataset(60, 400, seed=3), torch.arange(60) % 3, 3, folder)
    part.load(folder, 1, 3)
    alter(folder)
    with pytest.raises(DatasetError) as error:
        part.load(folder, 1, 3)
    assert words in str(error.value)
    assert str(error.value).endswith("`gnnbench partition`")
    assert "\n" not in str(error.value)


def test_each_part_is_whole_by_itself_and_belongs_to_its_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    written(dataset(60, 400, seed=3), torch.arange(60) % 3, 3, folder)
    shutil.rmtree(folder / "part-0002")
    assert len(part.load(folder, 1, 3).offsets) == 4
    with pytest.raises(DatasetError, match=r"holds 3 parts, but there are 4 processes; start 3, or .* --parts 4"):
        part.load(folder, 1, 4)
    with pytest.raises(
        DatasetError, match=r"written with dataset.seed=0, but the configuration has dataset.seed=1"
    ):
        part.load(folder, 1, 3, synthetic.Config(preset="cora", seed=1))


def test_the_command(tmp_path: Path) -> None:
    folder, spec = tmp_path / "new" / "parts", "synthetic:cora:0.05"
    output = run("partition", spec, "--parts", "3", "--out", folder)
    assert output.code == 0, output.stderr
    words = " ".join(output.stdout.split())
    for expected in ("in 3 metis parts", "halo share", "Balance: nodes and edges of the largest part are 1."):
        assert expected in words
    assert [*folder.parent.iterdir()] == [folder]
    assert sum(part.load(folder, rank, 3).num_rows for rank in range(3)) == 135
    facts = run("partition", spec, "--parts", "2", "--method", "random", "--out", tmp_path / "two", "--json")
    assert [part["nodes"] for part in json.loads(facts.stdout)["parts"]] == [68, 67]
    for arguments, words in {
        ("--out", str(folder)): "exists and is not an empty folder; give another --out",
        ("--out", "x", "--method", "matis"): "unknown method 'matis'; did you mean 'metis'?",
        ("--out", "x", "--parts", "0"): "Invalid value for '--parts'",
        (): "Missing option '--out'",
    }.items():
        refused = run("partition", spec, "--parts", "3", *arguments)
        assert (refused.code, refused.stdout) == (2, "")
        assert words in refused.stderr
