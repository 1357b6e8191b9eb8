"""All ops and models on a GPU, checked, then timed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gnnbench.api._options import DataRoot, Names, Out, ended, names
from gnnbench.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from gnnbench.kinds.suite import Suite

SUITES = ("gpu",)
SCALES = ("full", "tiny")


def suite(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    *,
    graphs: Annotated[Names, typer.Option(metavar="A,B"), str] = "",
    ops: Annotated[Names, typer.Option(metavar="A,B"), str] = "",
    budget: Annotated[float, typer.Option(min=0)] = 420,
    scale: Annotated[str, typer.Option(metavar="full|tiny")] = "",
    data_root: DataRoot = None,
    out: Out = None,
    quiet: bool = False,
    check: bool = True,
) -> Suite:
    """Check and time all ops and models on a GPU.

    Without one, they are checked in Triton's interpreter.

    Args:
        name: gpu: all ops and models of backend cuda.
        graphs: only these graphs, such as cora,reddit.
        ops: only these ops and models, such as gat_attention,train-gat.
        budget: seconds after which no further cell starts.
        scale: size of the graphs: full by default, tiny without a GPU.
        data_root, out, quiet, check: as in `compare`.

    Raises:
        ConfigError: a bad value, or `out` holds a suite of another device, scale or code.
        GnnbenchError: there is neither a GPU nor an interpreter, or `out` cannot be written.
        KeyboardInterrupt: Ctrl-C; what was measured is kept.
    """
    if name not in SUITES:
        raise ConfigError(f"unknown suite {name!r}{did_you_mean(name, SUITES)}")
    if scale and scale not in SCALES:
        raise ConfigError(f"--scale {scale}: must be {' or '.join(SCALES)}")
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # before kernels are defined
    from gnnbench import datasets
    from gnnbench.backends.cuda import CudaKernels
    from gnnbench.benchmarks import suites
    from gnnbench.kinds.suite import Suite

    device = torch.device(CudaKernels.device_type)
    size: Literal["full", "tiny"] = "tiny" if (scale or device.type) in ("tiny", "cpu") else "full"
    folder = Suite.folder(out, f"{name}-suite")
    with Suite.watched(quiet) as hear:
        record = suites.run(
            suites.cells(names(graphs), names(ops), size),
            scale=size,
            out=folder,
            roots=datasets.roots(data_root),
            budget_s=budget,
            on_event=hear,
        )
    return ended(Suite.of(record, folder / suites.FILE), check and record.status == "interrupted")
