"""One run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gnnbench.api import _options as options
from gnnbench.errors import ConfigError

if TYPE_CHECKING:
    from gnnbench.kinds.run import Run
    from gnnbench.training.run import Event


def train(
    config: options.Config = None,
    *,
    backend: options.Backend = "",
    dataset: options.Spec = "",
    epochs: options.Epochs = None,
    set: options.Overrides = None,
    memory_limit: options.Limit = "",
    workers: Annotated[int | None, typer.Option(min=1)] = None,
    data_root: options.DataRoot = None,
    out: options.Out = None,
    force: options.Force = False,
    resume: Annotated[str | Path | None, typer.Option(metavar="RUN_DIR"), Path | None] = None,
    track: Annotated[str | Sequence[str], typer.Option(metavar="NAMES"), str] = "",
    quiet: bool = False,
    check: bool = True,
) -> Run:
    """Train one model on one graph and measure every epoch.

    Args:
        config: a YAML file, the name of one in `configs` such as "gcn_cora", or a mapping of its sections; None is
            a small synthetic graph.
        backend: such as "isplib" or "isplib:fold_norm=false"; replaces the configuration's.
        dataset: such as "cora" or "synthetic:reddit:0.05"; replaces the configuration's.
        epochs: replaces `train.epochs`.
        set: other keys, as in `{"model.hidden": 64}`.
        memory_limit: such as "16GiB" or "80%".
        workers: processes of this machine, each with a part of the graph; replaces `train.workers`.
        data_root: the folder of datasets; None for `$GNNBENCH_DATA`, then the user's cache folder.
        out: the folder for the results; None for a new one in `runs/`.
        force: replace a run that `out` holds.
        resume: go on with the stopped run in this folder, whose own configuration counts.
        track: trackers that are told every epoch, such as "tensorboard,mlflow"; never while one is timed.
        quiet: show no progress; otherwise it is shown in notebooks and on terminals.
        check: raise if the run did not come to its end; False returns it, with `status` and `reason`.

    Raises:
        ConfigError: a bad value; `out` holds results, or `resume` no run.
        DatasetError: the data are missing, broken or cannot be trained on.
        GnnbenchError: the run failed, as by running out of memory; or `out` cannot be written.
        KeyboardInterrupt: Ctrl-C, SIGTERM or SIGHUP, after the epoch at hand; what was measured is kept.
    """
    from gnnbench import launch

    if workers and workers > 1 and not launch.started():
        launch.prepare()  # while PyTorch is imported here
    from gnnbench import datasets, kinds, trackers
    from gnnbench.config import validate
    from gnnbench.kinds.run import Run
    from gnnbench.results import files, schema
    from gnnbench.training import run

    roots, first, tracked = datasets.roots(data_root), launch.is_first(), options.names(track)
    trackers.check(tracked)
    if resume:
        if config or set or backend or dataset or epochs or memory_limit or workers or out:
            raise ConfigError("--resume takes the run's own configuration; leave out other options")
        folder = Path(resume)
        if not (folder / files.RUN).exists():
            what = next((f"a {kind.noun}" for kind in kinds.held(folder)), "no run")
            raise ConfigError(
                f"{folder} holds {what}; give the folder of a run to resume, such as runs/demo-isplib-1"
            )
        kept = files.load(schema.Result, folder / files.RUN)
        loaded = validate(kept.config, str(folder / files.RUN))
    else:
        loaded = options.load(config, set, dataset, epochs, memory_limit, backend, workers)
        folder = Path(out or "")
        if first:  # of the processes that torchrun started, which alone writes
            folder = Run.folder(out, f"{options.stem(config)}-{loaded.backend.name}", again=force)
    loaded = run.by_torchrun(loaded)
    with (
        launch.keep_server(),
        options.threads_kept(),
        Run.watched(quiet or not first, _tell) as hear,
        trackers.following(tracked if first else [], folder, hear) as told,
    ):
        result = run.start(loaded, roots=roots, out=folder, resume=resume is not None, on_event=told)
    return options.ended(Run.of(result, folder / files.RUN), check)


def _tell(event: Event) -> None:
    """Tell where nobody watches what was not as it should be, such as a checkpoint that cannot be written."""
    if event.kind == "message":
        print(f"gnnbench: {event.message}", file=sys.stderr)
