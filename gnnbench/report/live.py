"""Progress on a terminal while something runs; nothing is drawn while a clock is running."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gnnbench import units
from gnnbench.report import tables
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from rich.console import Console

AROUND = 6  # lines of a picture beside its title and rows: blanks, heading of two lines, rule, what is left out


class View:
    """A picture that is redrawn in place when told to, on a terminal or in a notebook, and gone at the end.

    It has no thread, which would take time from what is measured. `progress` makes of an event a line, and a table
    or None; by default the event is the line.
    """

    def __init__(self, console: Console, progress: Callable[..., tuple[str, Table | None]] | None = None) -> None:
        from rich.live import Live

        self.console = console
        self._progress = progress or (lambda step: (step, None))
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._output: Any = None  # of a notebook's cell

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if self._output is not None:
            self._display("")

    def __call__(self, *event: Any) -> None:
        line, table = self._progress(*event)
        if table:
            self.draw(line, table)
        else:
            self.say(line)

    def say(self, *lines: str) -> None:
        """Tell something: it stays on a terminal, and in a notebook until the next picture."""
        if self.console.is_jupyter:
            self._display("<br>".join(map(html.escape, lines)))
        else:
            self.console.print(*lines, sep="\n")

    def draw(self, line: str, table: Table, *, newest: bool = False) -> None:
        """Show `line` above as many columns and first rows, or `newest`, of `table` as there is room for."""
        from rich.console import Group
        from rich.text import Text

        if self.console.is_jupyter:
            self._display(tables.html(replace(table, title=line, notes=())))
            return
        shown: list[Any] = [Text(line, "bold")]
        if columns := tables.leading(table, self.console):
            taken = len(shown[0].wrap(self.console, self.console.width)) + AROUND
            lines = max(map(_lines, table.rows), default=1)
            room = max(1, (self.console.height - taken) // lines)
            rows = table.rows[-room:] if newest else table.rows[:room]
            shown += [Text(), tables.drawn(replace(table, rows=rows), columns)]
            if len(rows) < len(table.rows):
                shown.append(Text(f"… and {units.counted(len(table.rows) - len(rows), 'more row')}", "dim"))
        self._live.start()
        self._live.update(Group(*shown), refresh=True)

    def _display(self, text: str) -> None:
        """Replace what the cell shows; rich's own way needs ipywidgets, which few have."""
        from IPython.display import HTML, display

        if self._output is None:
            self._output = display(HTML(text), display_id=True)
        else:
            self._output.update(HTML(text))


def _lines(row: Sequence[Cell]) -> int:
    return max(1 + cell.text.count("\n") + bool(cell.below) * (1 + cell.below.count("\n")) for cell in row)
