"""Backends side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gnnbench.api import _options as options

if TYPE_CHECKING:
    from gnnbench.kinds.comparison import Comparison


def compare(
    config: options.Config = None,
    backends: Annotated[options.Names, typer.Option(metavar="A,B,C"), str] = "pyg,pyg-sparse,isplib",
    *,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    dataset: options.Spec = "",
    epochs: options.Epochs = None,
    set: options.Overrides = None,
    memory_limit: options.Limit = "",
    data_root: options.DataRoot = None,
    out: options.Out = None,
    force: options.Force = False,
    save_baseline: Annotated[str, typer.Option("--save-baseline", metavar="NAME")] = "",
    baseline: Annotated[str, typer.Option(metavar="NAME")] = "",
    fail_above: Annotated[str, typer.Option("--fail-above", metavar="PERCENT")] = "5%",
    dgl_python: options.Dgl = "",
    quiet: bool = False,
    check: bool = True,
) -> Comparison:
    """Check backends against PyG, then time them in turn.

    Every process is checked again after its last epoch. A backend that fails is a row with its reason; one whose
    result differs from PyG's has no speedup. Notes below the table say what was checked, and what was not. What
    the folder of results holds is kept, but measured anew where the code changed since.

    Args:
        config, dataset, epochs, set, memory_limit, data_root, quiet: as in `train`.
        backends: with pyg as the baseline; options as in isplib:fold_norm=false.
        rounds: fresh processes per backend, interleaved.
        out: the folder for the results, which goes on with a comparison that it holds.
        force: replace a comparison of another configuration in `out`.
        save_baseline: keep the epochs by this name for later comparisons.
        baseline: hold against epochs kept by this name; exit code 4 if slower beyond doubt.
        fail_above: slowdown that `baseline` tolerates.
        dgl_python: an interpreter whose environment has the DGL of backend dgl, if this one has none.
        check: raise if it did not come to its end.

    Raises:
        ConfigError: a bad value, or `out` holds a comparison of another configuration.
        GnnbenchError: bad data, or `out` cannot be written.
        KeyboardInterrupt: Ctrl-C; what was measured is kept.
    """
    from gnnbench import launch

    launch.prepare()  # while PyTorch is imported here
    from gnnbench import comparison, datasets
    from gnnbench.comparison import baseline as baselines
    from gnnbench.kinds.comparison import Comparison
    from gnnbench.results import files

    loaded = options.load(config, set, dataset, epochs, memory_limit)
    run, roots = comparison.resolve(loaded, options.names(backends)), datasets.roots(data_root)
    limit, kept = baselines.share(fail_above), None
    if save_baseline:
        baselines.path(roots.cache, save_baseline)
    if baseline:
        kept = baselines.load(roots.cache, baseline)
        baselines.check(kept, baseline, run, rounds)
    folder = Comparison.folder(out, f"{options.stem(config)}-compare")
    with options.with_dgl(dgl_python), Comparison.watched(quiet) as hear:
        record = comparison.compare(run, rounds=rounds, out=folder, roots=roots, force=force, on_event=hear)
    if record.status == "ok" and (kept or save_baseline):
        seconds = comparison.epochs(record, folder)
        if kept:
            rows = [row.backend for row in record.rows]
            record.against = baselines.judge(kept, baseline, rows, seconds, limit)
            files.save_json(record, folder / files.COMPARISON)
        if save_baseline and record.exit_code == 0:
            now = baselines.Baseline(config=record.config, environment=record.environment, rounds=seconds)
            baselines.save(now, roots.cache, save_baseline)
    return options.ended(Comparison.of(record, folder / files.COMPARISON), check)
