"""One cell in a fresh process, so that nothing it does can end the reproduction."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from gnnbench import cells
from gnnbench.reproduce._cells import Cell, Context


class Work(cells.Work):
    """A cell of a reproduction."""

    module: ClassVar[str] = "gnnbench.reproduce._process"
    cell: Cell
    context: Context


def main(path: Path) -> int:
    """Run the cell in the file `path`; the exit code."""
    return cells.perform_file(Work, path)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
