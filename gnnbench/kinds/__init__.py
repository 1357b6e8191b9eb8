"""Kinds of results: how the JSON of a kind is told, and how its results are shown everywhere.

A file's `KIND` is a schema that is a `ResultKind`, too; `OTHERS` of `bench` are alike but for their schemas. Its
functions draw it: `table` or `tables`, and perhaps `records`, `title` with `panels` or `pictures`, `section` on a
page, and `progress` while it is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel, PrivateAttr

from gnnbench import registry
from gnnbench.report import live, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas

K = TypeVar("K", bound="ResultKind")
Hear = Callable[..., None]


class ResultKind(BaseModel):
    """A stored result; a notebook shows its table.

    Attributes:
        mark: the name in its JSON that no other kind has.
        file: what it is called in a folder of results; empty where a user names it.
        report: the module of the class, whose functions draw it unless the class has methods of its own.
        frame: the field that its frame has, unless that module makes the records.
        continues: whether the command that made it goes on with it after a stop.
        view: what draws events in place of `progress`.
        path: the JSON that it is kept in.
    """

    mark: ClassVar[str]
    file: ClassVar[str] = ""
    report: ClassVar[Any]
    frame: ClassVar[str] = "rows"
    continues: ClassVar[bool] = True
    view: ClassVar[Any] = None
    _path: Path = PrivateAttr()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls.report = sys.modules[cls.__module__]

    @classmethod
    def of(cls: type[K], record: BaseModel, path: Path) -> K:
        """The record that is kept in `path`."""
        made: Any = cls.model_construct(record.model_fields_set, **dict(record))
        made._path = path
        return made

    @property
    def path(self) -> Path:
        return self._path

    def tables(self) -> Sequence[tables.Table]:
        """Return the tables that the command line prints."""
        several: Callable[..., Sequence[tables.Table]] | None = getattr(self.report, "tables", None)
        return several(self) if several else [self.report.table(self)]

    def records(self) -> list[dict[str, Any]]:
        """Return the rows in numbers, with the names of the JSON."""
        own: Callable[..., list[dict[str, Any]]] | None = getattr(self.report, "records", None)
        rows: Sequence[BaseModel] = () if own else getattr(self, self.frame)
        return own(self) if own else [row.model_dump(exclude_none=True) for row in rows]

    @classmethod
    @contextmanager
    def watched(cls, quiet: bool, otherwise: Hear = lambda *_: None) -> Iterator[Hear]:
        """Draw what the function of a block is told, on a terminal or in a notebook, if there is one.

        Args:
            quiet: draw nothing.
            otherwise: is told where nothing is drawn.
        """
        console = tables.console(sys.stderr)
        if quiet or not (sys.stderr.isatty() or console.is_jupyter):
            yield otherwise
            return
        view = cls.view or partial(live.View, progress=getattr(cls.report, "progress", None))
        with view(console) as drawing:
            yield drawing

    def drawn(self: K) -> K:
        """Write its pictures beside its JSON; returns itself."""
        from gnnbench.report import plots

        for name, panels in self.report.pictures(self).items():
            files = (self.path.parent / f"{name}{suffix}" for suffix in (".png", ".svg"))
            plots.save(panels, self.report.title(self), *files)
        return self

    def to_frame(self) -> pandas.DataFrame:
        """One line per row of the result, with the names of its JSON, nested ones joined by dots."""
        import pandas

        return pandas.DataFrame(tables.flat(self.records()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def _repr_html_(self) -> str:
        return "\n".join(map(tables.html, self.tables()))


def known() -> dict[str, type[ResultKind]]:
    """All kinds by name."""
    modules = {name: registry.find("kinds", name) for name in registry.names("kinds")}
    return {name: module.KIND for name, module in modules.items()} | modules["bench"].OTHERS
