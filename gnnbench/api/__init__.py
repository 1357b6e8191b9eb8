"""Measuring from Python; the verbs of the command line are made of these functions.

_options     parameters that several functions share: their options, and what is made of them

A file that is named as its function is a verb: its parameters are options.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnnbench.kinds import ResultKind


def load_result(path: str | Path) -> ResultKind:
    """Load what a verb or one of these functions wrote: the folder of its results, or the JSON itself.

    Raises:
        ConfigError: there is no such file, it is not a result, or it is one of another schema.
    """
    from gnnbench import kinds

    return kinds.load(Path(path))
