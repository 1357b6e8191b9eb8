"""Everything that can go wrong on purpose: each error is one sentence with the value found and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar, Literal

Ending = Literal["unavailable", "unsupported", "oom", "failed"]  # of a run or a row without figures


class GnnbenchError(Exception):
    """Base of all errors meant for the user.

    Attributes:
        exit_code: what the command line exits with.
        status: what becomes of a run or a row that ends so; None where the input is at fault, not the run.
    """

    exit_code = 1
    status: ClassVar[Ending | None] = None


class ConfigError(GnnbenchError):
    """Bad input: a configuration, an option or a name. `problems` holds one sentence each."""

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class DatasetError(GnnbenchError):
    """A dataset that is missing, broken or cannot be trained on."""

    exit_code = 2


class GraphError(DatasetError):
    """Edges that do not describe a graph: out of range, unsorted, overflowing or of the wrong type."""


class BackendUnavailable(GnnbenchError):
    """A backend that was asked for cannot run on this machine."""

    status = "unavailable"


class UnsupportedOp(GnnbenchError):
    """A backend cannot run this model or tensor exactly; `reasons` says why."""

    status = "unsupported"

    def __init__(self, subject: str, reasons: Iterable[str]) -> None:
        self.reasons = list(reasons)
        super().__init__(f"{subject} is not supported: {'; '.join(self.reasons)}")


class OutOfMemory(GnnbenchError):
    """A run needed more memory than its limit or the machine allows."""

    status = "oom"


class RunFailed(GnnbenchError):
    """A run that stopped before its end, such as on a loss that is not a number."""

    status = "failed"


class WorkerLost(RunFailed):
    """Another of the processes that train together ended, or does not answer."""


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` for a near miss, otherwise a list of what begins with the name, or of all."""
    choices = sorted(allowed)
    begun = [choice for choice in choices if choice.lower().startswith(f"{name.lower()}:")]
    lowered = {choice.lower(): choice for choice in choices}
    close = [] if begun else difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return f"; did you mean '{lowered[close[0]]}'?" if close else f"; allowed: {', '.join(begun or choices)}"
