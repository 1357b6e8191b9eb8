"""Trained models at work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gnnbench.api import _options as options
from gnnbench.errors import ConfigError

if TYPE_CHECKING:
    from gnnbench.kinds.inference import Inference


def infer(
    config: options.Config = None,
    *,
    checkpoint: Annotated[str | Path | None, typer.Option(metavar="RUN_DIR|FILE"), Path | None] = None,
    mode: Annotated[str, typer.Option(metavar="full|layerwise|sampled")] = "full",
    backends: Annotated[options.Names, typer.Option(metavar="A,B,C"), str] = "pyg,isplib",
    rounds: Annotated[int, typer.Option(min=0)] = 3,
    dataset: options.Spec = "",
    set: options.Overrides = None,
    memory_limit: options.Limit = "",
    data_root: options.DataRoot = None,
    out: Annotated[str | Path | None, typer.Option(is_eager=True, metavar="FILE.npz|FOLDER"), Path | None] = None,
    force: options.Force = False,
    dgl_python: options.Dgl = "",
    quiet: bool = False,
    check: bool = True,
) -> Inference:
    """Infer with trained weights, by backends in turn.

    The outputs of all nodes, or graphs, are held against PyG's in every process; a backend whose outputs differ
    has no speedup.

    Args:
        config, dataset, set, memory_limit, data_root, quiet: as in `train`; without `config` that of the run.
        checkpoint: the folder of a run, whose best weights count, or a state_dict; otherwise those of the seed.
        mode: the whole graph at once, a layer at a time in blocks that fit the memory, or as batches are sampled.
        backends: with pyg as the baseline.
        rounds: fresh processes per backend, interleaved; 0 writes predictions alone.
        out: a .npz file for the outputs and classes, by the first backend that is not PyG, or else the folder for
            the figures, which goes on with an inference that it holds.
        force: replace the file, or an inference of another configuration.
        dgl_python: as in `compare`.
        check: raise if it did not come to its end.

    Raises:
        ConfigError: a bad value, weights of another model, or `out` is there.
        GnnbenchError: bad data, a run that failed, or `out` cannot be written.
        KeyboardInterrupt: Ctrl-C; what was measured is kept.
    """
    from gnnbench import launch

    launch.prepare()  # while PyTorch is imported here
    weights, stored = _weights(Path(checkpoint) if checkpoint else None)
    of_run = config is None and stored is not None
    loaded = options.load(stored if of_run else config, set, dataset, None, memory_limit)
    given = Path(out) if out else None
    predictions = given if given and given.suffix == ".npz" else None
    if predictions:
        if predictions.exists() and not force:
            raise ConfigError(f"{predictions} is there; choose another --out, or replace it with --force")
        if not predictions.parent.is_dir():
            raise ConfigError(f"--out {predictions}: there is no folder {predictions.parent}; create it first")
        if loaded.dataset.reorder != "none":
            raise ConfigError(
                f"predictions are in the order of the dataset, which "
                f"dataset.reorder={loaded.dataset.reorder} changes; leave it out"
            )
    elif not rounds:
        raise ConfigError("--rounds 0 times nothing; give --out predictions.npz, or one round or more")
    from gnnbench import datasets, inference
    from gnnbench.kinds.inference import Inference
    from gnnbench.results import files

    asked = inference.asked(loaded, mode, options.names(backends), weights)
    roots = datasets.roots(data_root)
    name = weights.absolute().parent.name if weights and of_run else options.stem(config)
    folder = Inference.folder(None if predictions else given, f"{name}-infer")
    with options.with_dgl(dgl_python), Inference.watched(quiet) as hear:
        file = predictions.absolute() if predictions else None
        record = inference.infer(
            asked, rounds=rounds, out=folder, roots=roots, force=force, predictions=file, on_event=hear
        )
    return options.ended(Inference.of(record, folder / files.INFERENCE), check)


def _weights(checkpoint: Path | None) -> tuple[Path | None, dict[str, object] | None]:
    """The file of weights, and the configuration of the run that it is of, if it is a run's.

    Raises:
        ConfigError: there is no such file, or the folder is no run's or has no weights.
    """
    from gnnbench.results import files, schema

    if checkpoint is None:
        return None, None
    if not checkpoint.is_dir():
        if not checkpoint.exists():
            raise ConfigError(f"--checkpoint {checkpoint}: is not there; give the folder of a run, or its best.pt")
        return checkpoint, None
    if not (checkpoint / files.RUN).exists():
        raise ConfigError(f"--checkpoint {checkpoint}: holds no run; give a folder such as runs/demo-isplib-1")
    weights = checkpoint / "best.pt"
    if not weights.exists():
        raise ConfigError(f"--checkpoint {checkpoint}: the run has no best.pt; resume it to its first evaluation")
    return weights, files.load(schema.Result, checkpoint / files.RUN).config
