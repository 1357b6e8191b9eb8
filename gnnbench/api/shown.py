"""Results as a notebook shows them: the table of their verb, and a frame of their rows for pandas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel, PrivateAttr

from gnnbench import comparison as comparing
from gnnbench import papers, profiling, sweeps
from gnnbench.benchmarks import collate as collating
from gnnbench.benchmarks import records
from gnnbench.benchmarks import sample as sampling
from gnnbench.errors import GnnbenchError
from gnnbench.report import bench, collate, comparison, profile, reproduce, run, sample, suite, sweep, tables, tune
from gnnbench.results import schema
from gnnbench.tuning import store

if TYPE_CHECKING:
    import pandas

    from gnnbench.report.tables import Table

S = TypeVar("S", bound="Shown")


class Shown(BaseModel):
    """A stored result; a notebook shows its table.

    Attributes:
        path: the JSON that it is kept in.
    """

    report: ClassVar[Any]  # the module that draws this kind of results
    frame: ClassVar[str] = "rows"  # the field that its frame has, unless that module makes the records
    _path: Path = PrivateAttr()

    @classmethod
    def of(cls: type[S], record: BaseModel, path: Path) -> S:
        """The record that is kept in `path`."""
        made: Any = cls.model_construct(record.model_fields_set, **dict(record))
        made._path = path
        return made

    @property
    def path(self) -> Path:
        return self._path

    def tables(self) -> Sequence[Table]:
        """Return the tables that the command line prints."""
        return [self.report.table(self)]

    def to_frame(self) -> pandas.DataFrame:
        """One line per row of the result, with the names of its JSON, nested ones joined by dots.

        Raises:
            GnnbenchError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise GnnbenchError("to_frame needs pandas; run `pip install pandas`") from None
        own = getattr(self.report, "records", None)
        return pandas.DataFrame(tables.flat(own(self) if own else tables.records(getattr(self, self.frame))))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def _repr_html_(self) -> str:
        return "\n".join(map(tables.html, self.tables()))


class Run(Shown, schema.Result):
    """A run; a line of its frame is an epoch."""

    report: ClassVar[Any] = run


class Comparison(Shown, comparing.Comparison):
    """A comparison; a line of its frame is a backend."""

    report: ClassVar[Any] = comparison


class Bench(Shown, records.Bench):
    """A benchmark of one op; a line of its frame is an implementation on one case."""

    report: ClassVar[Any] = bench


class Profile(Shown, profiling.Profile):
    """Where the time of an epoch goes; a line of its frame is an op of a layer."""

    report: ClassVar[Any] = profile
    frame: ClassVar[str] = "ops"

    def tables(self) -> Sequence[Table]:
        return profile.tables(self)


class CollateBench(Shown, collating.CollateBench):
    """A benchmark of batches of graphs; a line of its frame is an implementation on one size."""

    report: ClassVar[Any] = collate


class SampleBench(Shown, sampling.SampleBench):
    """A benchmark of sampled neighbourhoods; likewise."""

    report: ClassVar[Any] = sample


class Suite(Shown, records.Suite):
    """A suite of benchmarks; a line of its frame is an implementation on one case."""

    report: ClassVar[Any] = suite


class Tuning(Shown, store.Tuned):
    """Tuned choices; a line of its frame is a choice."""

    report: ClassVar[Any] = tune
    frame: ClassVar[str] = "choices"


class Reproduction(Shown, papers.Reproduction):
    """A paper's claims; a line of its frame is a measurement."""

    report: ClassVar[Any] = reproduce
    frame: ClassVar[str] = "measurements"

    def tables(self) -> Sequence[Table]:
        return reproduce.tables(self)


class Sweep(Shown, sweeps.Sweep):
    """A sweep; a line of its frame is a trial."""

    report: ClassVar[Any] = sweep


KINDS: dict[str, type[Shown]] = {  # by the names of `gnnbench.stored`
    "run": Run,
    "comparison": Comparison,
    "bench": Bench,
    "profile": Profile,
    "collate": CollateBench,
    "sample": SampleBench,
    "suite": Suite,
    "tuning": Tuning,
    "reproduction": Reproduction,
    "sweep": Sweep,
}
