"""Inferences of `gnnbench infer`."""

from __future__ import annotations

from typing import ClassVar

from gnnbench.inference import _record as record
from gnnbench.kinds import ResultKind
from gnnbench.report import inference as report
from gnnbench.results import files


class Inference(ResultKind, record.Inference):
    """An inference; a line of its frame is a backend."""

    mark = "checkpoint"
    file = files.INFERENCE
    report: ClassVar = report


KIND = Inference
