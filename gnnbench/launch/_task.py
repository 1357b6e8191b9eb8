"""Work for a fresh process: the file that the process reads it from, and its kind by name."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from gnnbench.datasets import Roots
from gnnbench.results.schema import Record


class Task(Record):
    """Work for a fresh process.

    Attributes:
        roots: where datasets are read, and where processed files go.
        out: the folder that everything of it goes to.
        code: hash of the code that is to run, see `gnnbench.measure.code`; empty: not known.
    """

    roots: Roots
    out: Path
    code: str = ""

    def perform(self) -> int:
        """Do the work in this process; returns the exit code."""
        raise NotImplementedError

    @property
    def kind(self) -> str:
        """Return where the fresh process finds this class: `"module:name"`."""
        return f"{type(self).__module__}:{type(self).__qualname__}"


def perform(kind: str, path: Path) -> int:
    """Do the task of this kind that is in a file; returns the exit code."""
    module, _, name = kind.partition(":")
    task: Task = getattr(import_module(module), name).model_validate_json(path.read_bytes())
    return task.perform()


if __name__ == "__main__":
    sys.exit(perform(sys.argv[1], Path(sys.argv[2])))
