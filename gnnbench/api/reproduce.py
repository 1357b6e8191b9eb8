"""A paper's claims beside measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gnnbench import registry
from gnnbench.api._options import DataRoot, Dgl, Force, Limit, Out, ended
from gnnbench.errors import ConfigError

if TYPE_CHECKING:
    from gnnbench.kinds.reproduction import Reproduction


def papers() -> str:
    """Names of all papers, read from the names of files: importing them would take as long as torch does."""
    return ", ".join(name.replace("_", "-") for name in registry.names("papers"))


def reproduce(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help=f"One of: {papers()}.")] = "",
    *,
    scale: Annotated[str, typer.Option(metavar="demo|small|paper")] = "demo",
    backend: Annotated[str, typer.Option(metavar="NAME")] = "",
    dgl_python: Dgl = "",
    data_root: DataRoot = None,
    memory_limit: Limit = "90%",
    out: Out = None,
    force: Force = False,
    quiet: bool = False,
    check: bool = True,
) -> Reproduction:
    """Measure a paper's claims by its protocol and a corrected one.

    Args:
        paper: such as "isplib".
        scale: built-in synthetic graphs (minutes), real graphs at the data root, or the paper's own graphs.
        backend: the backend with kernels that claims are held against, such as cuda; by default the CPU's.
        dgl_python, data_root, memory_limit, out, quiet, check: as in `bench`.
        force: run again the cells that are finished in `out`.

    Raises:
        ConfigError: a bad value, or `out` holds a reproduction of something else.
        GnnbenchError: `out` cannot be written.
        KeyboardInterrupt: Ctrl-C; what was measured is kept.
    """
    if not paper:
        raise ConfigError(f"give a paper: {papers()}")
    from gnnbench import launch

    launch.prepare()  # while PyTorch is imported here
    from gnnbench import datasets
    from gnnbench import papers as known
    from gnnbench.kinds.reproduction import Reproduction
    from gnnbench.results import files

    folder = Reproduction.folder(out, "-".join(filter(None, (paper, scale, backend))))
    with Reproduction.watched(quiet) as hear:
        record = known.reproduce(
            paper,
            scale,
            out=folder,
            roots=datasets.roots(data_root),
            backend=backend,
            dgl_python=dgl_python,
            memory_limit=memory_limit,
            force=force,
            on_event=hear,
        )
    made = Reproduction.of(record, folder / files.REPRODUCTION)
    return ended(made.drawn(), check)
