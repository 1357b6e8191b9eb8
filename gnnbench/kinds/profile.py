"""Profiles: where the time of an epoch goes."""

from __future__ import annotations

from typing import ClassVar

from gnnbench import profiling
from gnnbench.kinds import ResultKind
from gnnbench.report import live
from gnnbench.report import profile as report


class Profile(ResultKind, profiling.Profile):
    """Where the time of an epoch goes; a line of its frame is an op of a layer."""

    mark = "slowdown"
    file = "profile.json"
    report: ClassVar = report
    frame = "ops"
    view = live.TrainView


KIND = Profile
