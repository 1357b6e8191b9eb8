"""The example notebook runs, shows what it says, and is stored without outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import ROOT

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install -e '.[test]'")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install -e '.[test]'")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install -e '.[test]'")

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_the_notebook_is_stored_without_outputs() -> None:
    notebook = read()
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


@pytest.mark.slow
def test_the_notebook_runs(folder: Path) -> None:
    notebook = read()
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    for name, words in (
        ("train", "on synthetic cora, isplib"),
        ("epochs", "epoch_s"),
        ("compare", "Parity: green"),
        ("rows", "speedup.pyg.ratio"),
        ("bench", "spmm on synthetic cora"),
        ("profile", "gnnbench::spmm"),
    ):
        assert words in outputs[name][-1].data["text/html"], name
    for name in ("train", "compare", "bench", "profile"):  # progress, which is gone
        (shown,) = (output for output in outputs[name] if output.output_type == "display_data")
        assert shown.data["text/html"] == ""
    assert "did you mean 'hidden'?" in outputs["mistake"][0].text
