"""A run over a grid of its keys, with several seeds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gnnbench.api._options import AnyPath, DataRoot, Force, Out, Overrides, ended
from gnnbench.errors import ConfigError

if TYPE_CHECKING:
    from gnnbench.kinds.sweep import Sweep


def sweep(
    grid: Annotated[AnyPath, typer.Argument(metavar="GRID"), Path],
    *,
    set: Overrides = None,
    jobs: Annotated[int | str, typer.Option(metavar="N|slurm[:N]"), str] = "1",
    timing: Annotated[bool, typer.Option("--timing/--no-timing")] = True,
    partition: Annotated[str, typer.Option(metavar="NAME")] = "",
    minutes: Annotated[int, typer.Option("--time", metavar="MINUTES", min=1)] = 60,
    gpus: Annotated[int, typer.Option(metavar="N", min=0)] = 0,
    exclusive: Annotated[bool, typer.Option("--exclusive")] = False,
    data_root: DataRoot = None,
    out: Out = None,
    force: Force = False,
    quiet: bool = False,
    check: bool = True,
) -> Sweep:
    """Train a run over a grid of its keys, with several seeds.

    The best configuration is chosen by validation. Finished trials are kept in the folder for the results, by
    default runs/GRID-sweep: the same again continues.

    Args:
        grid: YAML file: run, grid (lists of values by key) and repeats.
        jobs: trials side by side, or jobs of a Slurm cluster, at most N at a time.
        timing: give times, which needs trials that run alone.
        partition: Slurm partition.
        minutes: Slurm's limit of a trial.
        gpus: GPUs of a trial on Slurm.
        exclusive: a node of its own for every trial on Slurm.
        set, data_root, out, quiet, check: as in `compare`.
        force: run again the trials that are finished in `out`.

    Raises:
        ConfigError: a bad value, or `out` holds other results.
        GnnbenchError: bad data, or `out` cannot be written.
        KeyboardInterrupt: Ctrl-C; what was measured is kept.
    """
    from gnnbench import datasets, sweeps
    from gnnbench.kinds.sweep import Sweep
    from gnnbench.results import files

    match = re.fullmatch(r"(slurm:?)?([1-9]\d*)?", str(jobs))
    if not match or not jobs or jobs == "slurm:" or (match[1] == "slurm" and match[2]):
        raise ConfigError(f"--jobs {jobs}: must be a number such as 4, slurm, or slurm:16")
    queue = None
    if match[1]:
        queue = sweeps.Queue(int(match[2] or sweeps.Queue.abreast), partition, minutes, gpus, exclusive)
    elif partition or gpus or exclusive:
        raise ConfigError("--partition, --gpus and --exclusive are of a cluster; add --jobs slurm")
    plan = sweeps.load(Path(grid), set or (), timed=timing)
    folder = Sweep.folder(out or Path("runs", f"{plan.name}-sweep"))
    with Sweep.watched(quiet) as hear:
        record = sweeps.sweep(
            plan,
            out=folder,
            roots=datasets.roots(data_root),
            force=force,
            jobs=1 if queue else int(match[2]),
            queue=queue,
            on_event=hear,
        )
    made = Sweep.of(record, folder / files.SWEEP)
    return ended(made.drawn(), check, "; ".join(record.warnings))
