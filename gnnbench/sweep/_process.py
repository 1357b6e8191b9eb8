"""One trial in a fresh process, so that nothing it does can end the sweep."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from gnnbench import cells
from gnnbench.sweep._trial import Trial


class Work(cells.Work):
    """A cell of a sweep."""

    module: ClassVar[str] = "gnnbench.sweep._process"
    cell: Trial
    context: cells.Context


def main(path: Path) -> int:
    """Run the trial in the file `path`; the exit code."""
    return cells.perform_file(Work, path)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
