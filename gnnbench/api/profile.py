"""Where the time of an epoch goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gnnbench.api import _options as options

if TYPE_CHECKING:
    from gnnbench.kinds.profile import Profile


def profile(
    config: options.Config = None,
    *,
    backend: options.Backend = "",
    dataset: options.Spec = "",
    epochs: Annotated[int, typer.Option()] = 3,
    set: options.Overrides = None,
    memory_limit: options.Limit = "",
    data_root: options.DataRoot = None,
    trace: Annotated[
        str | Path | None, typer.Option(metavar="FILE", callback=options.in_a_folder), Path | None
    ] = None,
    out: options.Out = None,
    quiet: bool = False,
    check: bool = True,
) -> Profile:
    """Show where the time of an epoch goes, by layer and op.

    A profiled epoch is slower than others; both are measured, and the table says by how much.

    Args:
        config, backend, dataset, set, memory_limit, data_root, out, quiet, check: as in `train`.
        epochs: to profile; as many are timed without the profiler before, after those of warm-up.
        trace: write a Chrome trace for ui.perfetto.dev to this file, .json or .json.gz.

    Raises:
        GnnbenchError: as `train` does.
    """
    from gnnbench import datasets, profiling
    from gnnbench.kinds.profile import Profile

    loaded = options.load(config, set, dataset, None, memory_limit, backend)
    trace = Path(trace) if trace else None
    profiling.check(loaded, epochs, trace)
    folder = Profile.folder(out, f"{options.stem(config)}-{loaded.backend.name}-profile")
    with options.threads_kept(), Profile.watched(quiet) as hear:
        record = profiling.profile(
            loaded, epochs=epochs, roots=datasets.roots(data_root), out=folder, trace=trace, on_event=hear
        )
    return options.ended(Profile.of(record, folder / "profile.json"), check)
