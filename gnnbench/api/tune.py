"""The fastest choices of kernels on a graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gnnbench.api import _options as options
from gnnbench.api._options import AnyPath, DataRoot, Names, Numbers, Overrides
from gnnbench.errors import ConfigError

if TYPE_CHECKING:
    from gnnbench.kinds.tuning import Tuning


def tune(
    target: Annotated[AnyPath, typer.Argument(metavar="TARGET"), str] = "",
    *,
    widths: Annotated[Numbers, typer.Option(metavar="N,N"), str] = "",
    ops: Annotated[Names, typer.Option(metavar="A,B"), str] = "",
    heads: Annotated[Numbers, typer.Option(metavar="N,N"), str] = "1",
    set: Overrides = None,
    backend: Annotated[str, typer.Option(metavar="NAME")] = "isplib",
    threads: Annotated[int, typer.Option(min=0)] = 0,
    data_root: DataRoot = None,
    quiet: bool = False,
) -> Tuning:
    """Find the fastest choices of the kernels on a graph.

    Later runs on the graph use them.

    Args:
        target: a graph such as cora or graph.mtx, or the YAML file of a run.
        widths: widths; by default those of the run.
        ops: such as spmm,gat_attention_backward; by default those of the run.
        heads: numbers of heads, for ops with heads.
        backend: a backend whose kernels have choices, such as isplib or cuda.
        threads: threads for all kernels; 0 uses PyTorch's default.
        set, data_root, quiet: as in `train`.

    Raises:
        ConfigError: a bad value.
        GnnbenchError: bad data, a choice that computes something else, or the cache cannot be written.
    """
    if not target:
        raise ConfigError("give a graph such as cora, the YAML file of a run, or --clear")
    from gnnbench import datasets
    from gnnbench.config import by_key
    from gnnbench.kinds.tuning import Tuning
    from gnnbench.measure import environment
    from gnnbench.tuning import search, store

    roots = datasets.roots(data_root)
    is_run = str(target).endswith((".yaml", ".yml"))
    if is_run:
        config = options.load(Path(target), set)
    else:
        config = options.load(None, options.BARE | by_key(set or ()), str(target))
    with options.threads_kept():
        environment.use_threads(threads or config.measure.threads)
        kind, device = search.kernels_of(backend)
        loaded = datasets.load(config.dataset, roots)
        if is_run and isinstance(loaded, datasets.TypedDataset):
            raise ConfigError(
                f"{loaded.name} has several types of nodes, and runs on them use no tuned choices; "
                "tune a run on a graph of one type"
            )
        dataset = datasets.single(loaded)
        kernels = kind()
        graph = dataset.graph(device, kernels)
        if is_run and not (widths or ops):
            wanted = search.requests_of(config, dataset, kind, device)
        else:
            asked = options.names(ops) or search.AGGREGATIONS
            wanted = search.requests(
                graph, asked, options.numbers(widths or "16,32,64,128,256"), options.numbers(heads)
            )
        with Tuning.watched(quiet) as hear:
            tuned = search.tune(graph, dataset.name, wanted, kernels=kernels, on_event=hear)
        tuned = search.keep(tuned, roots.cache, graph)
        return Tuning.of(tuned, store.path(roots.cache, graph, kernels.name))
