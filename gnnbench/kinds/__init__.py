"""Kinds of results: how the JSON of a kind is read and told, and how its results are shown everywhere.

A kind is a class that is a schema and a `ResultKind`. The functions of its file draw it: `table` or `tables`, and
perhaps `title` with `panels` or `pictures`, `section` on a page, and `progress` while it is measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel, PrivateAttr, ValidationError

from gnnbench import __version__, registry
from gnnbench.errors import ConfigError
from gnnbench.report import live, tables
from gnnbench.report.page import Section, section_of
from gnnbench.results import files
from gnnbench.results.schema import SCHEMA_VERSION, OfRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas

K = TypeVar("K", bound="ResultKind")
Hear = Callable[..., None]


class ResultKind(BaseModel):
    """A stored result; a notebook shows its table."""

    mark: ClassVar[str]  # the name in its JSON that no other kind has
    file: ClassVar[str] = ""  # what it is called in a folder of results; empty where a user names it
    noun: ClassVar[str] = ""  # what sentences call it; empty: as its class is called
    report: ClassVar[Any]  # the module of the class, whose functions draw it unless it has methods of its own
    frame: ClassVar[str] = "rows"  # the field that its frame has
    continues: ClassVar[bool] = True  # whether the command that made it goes on with it after a stop
    view: ClassVar[Any] = None  # what draws events in place of `progress`
    _path: Path = PrivateAttr()  # the JSON that it is kept in

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls.report = sys.modules[cls.__module__]
        cls.noun = cls.noun or cls.__name__.lower()

    @classmethod
    def folder(cls, out: str | Path | None, new: str = "", *, again: bool = True) -> Path:
        """Return the folder for a result: `out`, or else one in `runs/` that is called `new`, with a number.

        Raises:
            ConfigError: `out` is a file, or holds a result of another kind, or of this one unless `again`.
            GnnbenchError: the current folder cannot be written.
        """
        if not out:
            return files.new_folder(new)
        folder = Path(out)
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{folder} is a file, and results are written to a folder; choose another --out")
        for kind in held(folder, but=cls.file if again else ""):
            remedy = ", replace it with --force, or go on with it by --resume" if kind.file == cls.file else ""
            raise ConfigError(f"{folder} holds a {kind.noun}; choose another --out{remedy}")
        return folder

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

    def section(self) -> Section:
        """Make the section of a page about it."""
        if make := getattr(self.report, "section", None):
            made: Section = make(self)
        else:
            made = section_of(self, self.tables(), (), question="", verdict=["The table holds what was measured."])
        status = getattr(self, "status", "ok")
        if status != "ok" and not isinstance(self, OfRun):  # whose verdict says so
            made = replace(made, verdict=[*made.verdict, f"Not finished when this was written: {status}."])
        return made

    def records(self) -> list[dict[str, Any]]:
        """Return the rows in numbers, with the names of the JSON."""
        return [row.model_dump(exclude_none=True) for row in getattr(self, self.frame)]

    @classmethod
    @contextmanager
    def watched(cls, quiet: bool, otherwise: Hear = lambda *_: None) -> Iterator[Hear]:
        """Draw what the function of a block is told, on a terminal or in a notebook; if not, tell `otherwise`."""
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
            pictures = (self.path.parent / f"{name}{suffix}" for suffix in (".png", ".svg"))
            plots.save(panels, self.report.title(self), *pictures)
        return self

    def to_frame(self) -> pandas.DataFrame:
        """One line per row of the result, with the names of its JSON, nested ones joined by dots."""
        import pandas

        return pandas.DataFrame(tables.flat(self.records()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def _repr_html_(self) -> str:
        return "\n".join(map(tables.html, self.tables()))


def known() -> list[type[ResultKind]]:
    """All kinds, which are all such classes with a mark."""
    found = (each for name in registry.names("kinds") for each in vars(registry.find("kinds", name)).values())
    kinds = dict.fromkeys(each for each in found if isinstance(each, type(ResultKind)) and hasattr(each, "mark"))
    return [*kinds]


def held(folder: Path, but: str = "") -> list[type[ResultKind]]:
    """Return the kinds of results that a folder holds, `but` those in a file that is called so."""
    names = {each.name for each in folder.glob("*.json")} - {but}
    return [kind for kind in known() if kind.file in names] if names else []


def load(path: Path) -> ResultKind:
    """Load what a verb wrote: the folder of its results or the JSON itself.

    Raises:
        ConfigError: there is no such file, it is not a result, or it is one of another schema.
    """
    if path.is_dir():
        if not (present := held(path)):
            names = sorted({kind.file for kind in known()} - {""})
            raise ConfigError(f"{path}: holds none of {', '.join(names)}; give the folder of a run or its JSON")
        path /= min(kind.file for kind in present)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not JSON: {error}") from None
    kind = next((each for each in known() if isinstance(raw, dict) and each.mark in raw), None)
    if kind is None:
        raise ConfigError(
            f"{path}: is not a result of gnnbench; give the folder or the JSON that one of its commands wrote"
        )
    if (version := raw.get("schema_version", SCHEMA_VERSION)) != SCHEMA_VERSION:
        raise ConfigError(
            f"{path}: has schema {version!r}, and gnnbench {__version__} reads schema {SCHEMA_VERSION}; "
            f"{_remedy(raw)}"
        )
    try:
        result = kind.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or kind.__name__.lower()
        raise ConfigError(f"{path}: {key}: {first['msg'].lower()}; {_remedy(raw)}") from None
    result._path = path
    return result


def _remedy(raw: dict[str, Any]) -> str:
    """Say what to do with a file that this version cannot open, though it may have written it."""
    environment = raw.get("environment")
    packages = environment.get("packages") if isinstance(environment, dict) else None
    wrote = packages.get("gnnbench") if isinstance(packages, dict) else None
    if wrote == __version__:
        return "it was changed since it was written: restore it, or measure again"
    return f"open it with gnnbench {wrote or 'of the version that wrote it'}, or measure again"
