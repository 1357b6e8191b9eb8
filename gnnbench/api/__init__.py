"""Measuring from Python; the verbs of the command line call these functions, or are made of them.

__init__     train, compare, bench and profile; load_result
_configs     where a configuration comes from, and what overrides it
_options     parameters that several functions share, and how they end

A file that is named as its function is a verb: its parameters are options.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from gnnbench.api import _configs as configs
from gnnbench.api._configs import Overrides, Source
from gnnbench.api._options import AnyPath, ended, path, threads_kept
from gnnbench.errors import ConfigError

if TYPE_CHECKING:
    from gnnbench import kinds
    from gnnbench.kinds.bench import Bench
    from gnnbench.kinds.comparison import Comparison
    from gnnbench.kinds.profile import Profile
    from gnnbench.kinds.run import Run
    from gnnbench.training.run import Event


def train(
    config: Source = None,
    *,
    backend: str = "",
    dataset: str = "",
    epochs: int | None = None,
    set: Overrides = None,
    memory_limit: str = "",
    workers: int | None = None,
    data_root: AnyPath | None = None,
    out: AnyPath | None = None,
    force: bool = False,
    resume: AnyPath | None = None,
    quiet: bool = False,
    check: bool = True,
) -> Run:
    """Train one model on one graph and measure every epoch, as `gnnbench train` does.

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
        resume: the folder of a stopped run to go on with, in place of all but `quiet`, `data_root` and `check`.
        quiet: show no progress; otherwise it is shown in notebooks and on terminals.
        check: raise if the run did not come to its end; False returns it, with `status` and `reason`.

    Raises:
        ConfigError: a bad value; `out` holds results, or `resume` no run.
        DatasetError: the data are missing, broken or cannot be trained on.
        GnnbenchError: the run failed, as by running out of memory; or `out` cannot be written.
        KeyboardInterrupt: Ctrl-C, SIGTERM or SIGHUP, after the epoch at hand; what was measured is kept.
    """
    from gnnbench import datasets, history
    from gnnbench.config import validate
    from gnnbench.kinds.run import Run
    from gnnbench.report import live
    from gnnbench.results import files, schema
    from gnnbench.training import start, team

    roots, first = datasets.roots(path(data_root)), team.is_first()
    if resume:
        if config or set or backend or dataset or epochs or memory_limit or workers or out:
            raise ConfigError("--resume takes the run's own configuration; leave out other options")
        folder = Path(resume)
        if not (folder / files.RUN).exists():
            what = next((f"a {kind}" for name, kind in files.KINDS.items() if (folder / name).exists()), "no run")
            raise ConfigError(
                f"{folder} holds {what}; give the folder of a run to resume, such as runs/demo-isplib-1"
            )
        kept = files.load(schema.Result, folder / "results.json")
        loaded = validate(kept.config, str(folder / "results.json"))
    else:
        loaded = configs.load(config, set, dataset, epochs, memory_limit, backend, workers)
        folder = Path(out or "")  # of the first process that torchrun started, which alone writes
        if out and first:
            files.check_out(folder, files.RUN if force else "")
        elif first:
            folder = files.new_folder(f"{configs.stem(config)}-{loaded.backend.name}")
    loaded = start.by_torchrun(loaded)
    with threads_kept(), live.TrainView.watched(quiet or not first) or nullcontext() as view:
        result = start.run(loaded, roots=roots, out=folder, resume=resume is not None, on_event=view or _tell)
    made = Run.of(result, folder / "results.json")
    if result.status == "ok" and first:
        history.remember(roots.cache, "run", made, made.path)
    return ended(made, check, result.reason)


def _tell(event: Event) -> None:
    """Tell where nobody watches what was not as it should be, such as a checkpoint that cannot be written."""
    if event.kind == "message":
        print(f"gnnbench: {event.message}", file=sys.stderr)


def compare(
    config: Source = None,
    backends: str | Sequence[str] = ("pyg", "pyg-sparse", "isplib"),
    *,
    rounds: int = 3,
    dataset: str = "",
    epochs: int | None = None,
    set: Overrides = None,
    memory_limit: str = "",
    data_root: AnyPath | None = None,
    out: AnyPath | None = None,
    force: bool = False,
    save_baseline: str = "",
    baseline: str = "",
    fail_above: str = "5%",
    quiet: bool = False,
    check: bool = True,
) -> Comparison:
    """Check backends against PyG, then time them in turn, in fresh processes, as `gnnbench compare` does.

    A backend that fails is a row with its reason; one whose result differs from PyG's has no speedup, and
    `parity.ok` is False then.

    Args:
        config, dataset, epochs, set, memory_limit, data_root, quiet: as in `train`.
        backends: such as `["pyg", "isplib", "isplib:fold_norm=false"]`.
        rounds: fresh processes per backend, interleaved.
        out: the folder for the results, which goes on with a comparison that it holds; None for a new one.
        force: replace a comparison of another configuration in `out`.
        save_baseline: the name to keep the epochs by.
        baseline: the name of epochs that were kept, to hold this comparison against: see `against` of the result.
        fail_above: the slowdown that `baseline` tolerates.
        check: raise if it did not come to its end.

    Raises:
        ConfigError: a bad value, or `out` holds a comparison of another configuration.
        GnnbenchError: bad data, or `out` cannot be written.
        KeyboardInterrupt: Ctrl-C; what was measured is kept.
    """
    from gnnbench import launch

    loaded = configs.load(config, set, dataset, epochs, memory_limit)
    launch.prepare()  # while PyTorch is imported here
    from gnnbench import comparison, datasets, history
    from gnnbench.comparison import baseline as baselines
    from gnnbench.kinds.comparison import Comparison
    from gnnbench.results import files

    run, roots = comparison.resolve(loaded, configs.names(backends)), datasets.roots(path(data_root))
    limit, kept = baselines.share(fail_above), None
    if save_baseline:
        baselines.path(roots.cache, save_baseline)
    if baseline:
        kept = baselines.load(roots.cache, baseline)
        baselines.check(kept, baseline, run, rounds)
    folder = Path(out) if out else files.new_folder(f"{configs.stem(config)}-compare")
    with Comparison.view.watched(quiet) or nullcontext() as view:
        record = comparison.compare(
            run,
            rounds=rounds,
            out=folder,
            roots=roots,
            force=force,
            on_event=view or (lambda _: None),
        )
    if record.status == "ok" and (kept or save_baseline):
        seconds = comparison.epochs(record, folder)
        if kept:
            rows = [row.backend for row in record.rows]
            record.against = baselines.judge(kept, baseline, rows, seconds, limit)
            files.save_json(record, folder / "comparison.json")
        if save_baseline and record.exit_code == 0:
            baselines.save(record.config, record.environment, seconds, roots.cache, save_baseline)
    made = Comparison.of(record, folder / "comparison.json")
    if record.status == "ok":
        history.remember(roots.cache, "comparison", made, made.path)
    return ended(made, check, f"the same call with out={str(folder)!r} continues")


def bench(
    op: str,
    graph: str = "synthetic:reddit:0.01",
    *,
    widths: Sequence[int] = (16, 32, 64, 128, 256),
    heads: Sequence[int] = (1,),
    shapes: str | Sequence[str] = (),
    backend: str = "isplib",
    against: str | Sequence[str] = (),
    backward: bool = False,
    weighted: bool = False,
    dgl_python: str = "",
    threads: int = 0,
    data_root: AnyPath | None = None,
    memory_limit: str = "90%",
    out: AnyPath | None = None,
    quiet: bool = False,
    check: bool = True,
) -> Bench:
    """Time an op beside its peers and the limits of this machine, as `gnnbench bench` does.

    Args:
        op: such as "spmm", "sddmm", "edge_softmax", "gat_attention" or "linear".
        graph: such as "cora" or "synthetic:reddit:0.05"; layers such as "linear" take none.
        widths: the channels of all heads together.
        heads: numbers of heads, for ops with heads.
        shapes: of a layer, such as "820x300x600"; empty for those of the configurations that gnnbench has.
        backend: whose kernels to time.
        against: peers, such as `["torch-csr", "pyg"]`; empty for the usual ones.
        backward: time the gradients too.
        weighted: run spmm and spmm_max with edge values.
        dgl_python: the interpreter that has DGL; empty for this one.
        threads: for all kernels; 0 uses PyTorch's default.
        data_root, memory_limit, out, quiet: as in `train`.
        check: raise if it did not come to its end.

    Raises:
        ConfigError: a bad value.
        GnnbenchError: bad data, or `out` cannot be written.
        KeyboardInterrupt: Ctrl-C; what was measured is kept.
    """
    from gnnbench import benchmarks, datasets
    from gnnbench.kinds.bench import Bench
    from gnnbench.measure import clock, environment
    from gnnbench.results import files

    against, sizes = configs.names(against), configs.names(shapes)
    grid = benchmarks.Grid(op, widths, heads, against, backward, weighted, backend, sizes)
    roots = datasets.roots(path(data_root))
    with threads_kept():
        environment.use_threads(threads)
        dataset = None
        if grid.on_graph:
            dataset = datasets.single(datasets.load(configs.load(None, configs.BARE, graph).dataset, roots))
        folder = Path(out) if out else files.new_folder(f"{op}-bench")
        with Bench.view.watched(quiet) or nullcontext() as view:
            record = benchmarks.bench(
                grid,
                dataset,
                out=folder,
                cache=roots.cache,
                now=clock.instants(grid.device),
                dgl_python=dgl_python,
                memory_limit=memory_limit,
                on_event=view or (lambda *_: None),
            )
    return ended(Bench.of(record, folder / "bench.json"), check, f"the measurements so far are in {folder}")


def profile(
    config: Source = None,
    *,
    backend: str = "",
    dataset: str = "",
    epochs: int = 3,
    set: Overrides = None,
    memory_limit: str = "",
    data_root: AnyPath | None = None,
    trace: AnyPath | None = None,
    out: AnyPath | None = None,
    quiet: bool = False,
    check: bool = True,
) -> Profile:
    """Show where the time of an epoch goes, by layer and op, as `gnnbench profile` does.

    Args:
        config, backend, dataset, set, memory_limit, data_root, out, quiet, check: as in `train`.
        epochs: to profile; as many are timed without the profiler before, after those of warm-up.
        trace: the file for a Chrome trace, `.json` or `.json.gz`; None for none.

    Raises:
        As `train` does.
    """
    from gnnbench import datasets, profiling
    from gnnbench.kinds.profile import Profile
    from gnnbench.report import live
    from gnnbench.results import files

    loaded = configs.load(config, set, dataset, None, memory_limit, backend)
    profiling.check(loaded, epochs, path(trace))
    folder = Path(out) if out else files.new_folder(f"{configs.stem(config)}-{loaded.backend.name}-profile")
    with threads_kept(), live.TrainView.watched(quiet) or nullcontext() as view:
        record = profiling.profile(
            loaded,
            epochs=epochs,
            roots=datasets.roots(path(data_root)),
            out=folder,
            trace=path(trace),
            on_event=view,
        )
    return ended(Profile.of(record, folder / "profile.json"), check, record.reason)


def load_result(path: AnyPath) -> kinds.ResultKind:
    """Load what a verb or one of these functions wrote: the folder of its results, or the JSON itself.

    Raises:
        ConfigError: there is no such file, it is not a result, or it is one of another schema.
    """
    from gnnbench import stored

    found: kinds.ResultKind = stored.load(Path(path)).record
    return found
