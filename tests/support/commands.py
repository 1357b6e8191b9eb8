"""Runs the command line in this process."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from gnnbench.cli import app

ROOT = Path(__file__).parents[2]
TINY = ("--dataset", "synthetic:cora:0.05", "--set", "model.hidden=8", "--epochs", "4")


class Output(NamedTuple):
    code: int
    stdout: str
    stderr: str


def run(*arguments: str | Path) -> Output:
    """In this process; an exception that is not an exit is raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="gnnbench")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Output(result.exit_code, result.stdout, result.stderr)
