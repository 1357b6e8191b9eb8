"""Progress on a terminal while something runs; nothing is drawn while a clock is running."""

from __future__ import annotations

import html
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from gnnbench import units
from gnnbench.measure import clock
from gnnbench.report import run, tables
from gnnbench.report.tables import Cell, Table

if TYPE_CHECKING:
    from rich.console import Console

    from gnnbench.training.run import Event

SHOWN_EPOCHS = 10
AROUND = 6  # lines of a picture beside its title and rows: blanks, heading of two lines, rule, what is left out
REDRAW_S = 0.1
STEP_REDRAW_S = 0.5  # within an epoch, whose clock is stopped meanwhile

V = TypeVar("V", bound="View")


class View:
    """A picture that is redrawn in place when told to, on a terminal or in a notebook, and gone at the end.

    It has no thread, which would take time from what is measured.
    """

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self.console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._output: Any = None  # of a notebook's cell

    def __enter__(self: V) -> V:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if self._output is not None:
            self._display("")

    def say(self, *lines: str) -> None:
        """Tell something: it stays on a terminal, and in a notebook until the next picture."""
        if self.console.is_jupyter:
            self._display("<br>".join(map(html.escape, lines)))
        else:
            self.console.print(*lines, sep="\n")

    def draw(self, line: str, table: Table, *, newest: bool = False) -> None:
        """Show `line` above as many columns and rows of `table` as the terminal has room for.

        Args:
            newest: whether the last rows are those to keep, instead of the first.
        """
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


class Progress(View):
    """Draws events as `progress` says: a line, and a table or None; without it, events are said as they are."""

    def __init__(self, console: Console, progress: Callable[..., tuple[str, Table | None]] | None = None) -> None:
        super().__init__(console)
        self._progress = progress or (lambda step: (step, None))

    def __call__(self, *event: Any) -> None:
        line, table = self._progress(*event)
        if table:
            self.draw(line, table)
        else:
            self.say(line)


class TrainView(View):
    """The latest epochs; the seconds that epochs took decide when to redraw."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._rows: deque[list[Cell]] = deque(maxlen=SHOWN_EPOCHS)
        self._undrawn_s = REDRAW_S
        self._drawn_at = 0.0

    def __enter__(self: V) -> V:
        self.say("loading the dataset")
        return self

    def __call__(self, event: Event) -> None:
        """Show what just happened."""
        result = event.result
        if event.kind == "message":
            self.say(event.message)
        elif event.kind == "dataset_loaded":
            self.say(result.dataset, *run.graph(result.dataset_facts))
        elif event.kind == "prepared" and result.prepare_s is not None:
            self.say(f"prepared for {result.backend} in {units.seconds(result.prepare_s)}")
        elif event.kind == "step":
            if clock.cpu() - self._drawn_at >= STEP_REDRAW_S:
                self._draw(event, f", step {event.steps} of {event.of}")
        elif event.kind == "epoch" and event.sample:
            self._rows.append(run.epoch_row(event.sample, event.evaluation))
            self._undrawn_s += event.sample.epoch_s
            if self._undrawn_s >= REDRAW_S:
                self._undrawn_s = 0.0
                self._draw(event)

    def _draw(self, event: Event, step: str = "") -> None:
        result = event.result
        last = result.samples[-1] if result.samples else None
        line = _position(
            result.config["train"], last.repeat if last else 0, (last.epoch if last else 0) + bool(step)
        )
        title = run.title(result.config, result.dataset, result.backend)
        heading = run.epoch_heading(last) if last else run.EPOCH_HEADING
        self.draw(f"{title}: {line}{step}", Table(heading, list(self._rows)), newest=True)
        self._drawn_at = clock.cpu()


def _lines(row: Sequence[Cell]) -> int:
    return max(1 + cell.text.count("\n") + bool(cell.below) * (1 + cell.below.count("\n")) for cell in row)


def _position(train: dict[str, Any], repeat: int, epoch: int) -> str:
    of_repeats = f", repeat {repeat + 1} of {train['repeats']}" if train["repeats"] > 1 else ""
    return f"epoch {epoch} of {train['epochs']}{of_repeats}"
