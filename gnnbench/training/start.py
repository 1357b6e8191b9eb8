"""A run in this process, or in as many as it asks for, which this one starts and waits for."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnnbench import config as configs
from gnnbench import datasets, launch, stopping
from gnnbench.config import Run
from gnnbench.errors import ConfigError, GnnbenchError
from gnnbench.launch import Task
from gnnbench.results import files
from gnnbench.results.schema import Result
from gnnbench.training import checkpoint, team
from gnnbench.training import run as training
from gnnbench.training.run import Event

Hear = Callable[[Event], None]


class Share(Task):
    """A run, of which every worker does its share."""

    config: dict[str, Any]
    resume: bool

    def perform(self) -> int:
        """Train as one worker; returns the exit code."""
        try:
            result = training.run(
                configs.validate(self.config, str(self.out)),
                roots=self.roots,
                out=self.out,
                resume=self.resume,
                on_event=_say,
            )
        except GnnbenchError as error:
            print(json.dumps({"kind": "error", "message": str(error), "exit_code": error.exit_code}), flush=True)
            print(f"gnnbench: {error}", file=sys.stderr)
            return error.exit_code
        if result.status != "ok":
            print(f"gnnbench: {result.reason}", file=sys.stderr)
        return exit_code(result)


def by_torchrun(config: Run) -> Run:
    """`config` with as many workers as torchrun started."""
    place = team.started()
    if place is None or place[1] == config.train.workers:
        return config
    raw = training.resolved(config)
    return configs.validate({**raw, "train": {**raw["train"], "workers": place[1]}}, "torchrun")


def run(
    config: Run, *, roots: datasets.Roots, out: Path, resume: bool = False, on_event: Hear | None = None
) -> Result:
    """`training.run.run`, in `train.workers` processes if it asks for several and torchrun started none."""
    if not config.distributed or team.started():
        return training.run(config, roots=roots, out=out, resume=resume, on_event=on_event)
    task = Share(config=training.resolved(config), roots=roots, out=out, resume=resume)
    if not resume:
        (out / files.RUN).unlink(missing_ok=True)
    source, backend = task.config["dataset"]["source"], task.config["backend"]["name"]
    known = Result(status="failed", backend=backend, dataset=source, config=task.config)
    errors: list[GnnbenchError] = []

    def hear(line: str) -> None:
        """Pass on an event of worker 0, with the result as far as its events tell it."""
        nonlocal known
        if not line.startswith('{"kind":'):  # what a library prints
            return
        word = json.loads(line)
        if word["kind"] == "error":
            kind = ConfigError if word["exit_code"] == ConfigError.exit_code else GnnbenchError
            errors.append(kind(word["message"]))
            return
        event = Event.model_validate({"result": known, **word})
        known = event.result
        if event.sample:
            known.samples.append(event.sample)
        if on_event:
            on_event(event)

    codes = launch.run_ranks(task, config.train.workers, team.RENDEZVOUS, hear)
    if errors:
        raise errors[-1]
    return _result(task, known, codes)


def exit_code(result: Result) -> int:
    """Return the exit code of a process that had this result."""
    return {"ok": 0, "interrupted": stopping.exit_code()}.get(result.status, 1)


def _say(event: Event) -> None:
    """Print an event as a line, with the result where more of it is known than epochs."""
    known = event.kind in ("dataset_loaded", "prepared")
    print(event.model_dump_json(exclude_defaults=True, exclude=set() if known else {"result"}), flush=True)


def _result(task: Share, known: Result, codes: dict[int, int]) -> Result:
    """Read what worker 0 wrote; with the reason, where a worker ended without giving one."""
    stored = task.out / files.RUN
    result = files.load(Result, stored) if stored.exists() else known
    if result.status == "ok":
        return result
    for rank, code in codes.items():
        if code < 0 or (code and result.reason in ("", training.UNFINISHED)):
            result.status, reason = launch.rank_verdict(task, rank, code)
            if (task.out / checkpoint.CHECKPOINT).exists():
                out = shlex.quote(str(task.out))
                reason += f"; go on from the last checkpoint with: gnnbench train --resume {out}"
            result.reason = reason
            if stopping.stopped(code):
                result.status, result.reason = "interrupted", f"stopped by {stopping.by()} before the first epoch"
            files.save_json(result, stored)
            break
    return result
