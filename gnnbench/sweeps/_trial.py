"""One configuration with one seed, in a fresh process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gnnbench import cells, config
from gnnbench.cells import Outcome
from gnnbench.results import files
from gnnbench.results.schema import Record, Result
from gnnbench.training import start


class Trial(Record):
    """A run as `gnnbench train` does it.

    Attributes:
        key: the name of its folder, which another configuration, seed or kind of timing does not share.
        values: of the axes, by key.
        config: the resolved configuration.
        timed: whether it has the machine to itself.
    """

    key: str
    values: dict[str, Any]
    seed: int
    config: dict[str, Any]
    timed: bool = True

    @property
    def name(self) -> str:
        """The configuration in words: `"hidden 64, cora, isplib"`."""
        return label(self.values)

    def run(self, work: Work, tell: Callable[[str], None]) -> Outcome:
        """Train from the first epoch on."""
        result = start.run(config.validate(self.config, self.key), roots=work.roots, out=work.out)
        return Outcome(status=result.status, reason=result.reason)

    def result(self, out: Path) -> Result:
        """Read the result that `run` left in `out`.

        Raises:
            GnnbenchError: nothing.
        """
        return files.load(Result, out / "results.json")


def label(values: Mapping[str, Any]) -> str:
    """Values of axes in words; keys are cut to their last part where that tells them apart."""
    short = {key: key.rpartition(".")[2] for key in values}
    names = {key: last if [*short.values()].count(last) == 1 else key for key, last in short.items()}
    return ", ".join(f"{names[key]} {value}" if "." in key else str(value) for key, value in values.items())


class Work(cells.Work):
    """A trial and where it runs, in a fresh process so that nothing it does can end the sweep."""

    cell: Trial
